"""The data sets of the paper: what they are, where they are found, fetched from and checked against.

A set lies in the hub's layout, `<data dir>/<name>/<split>-NNNNN-of-NNNNN.parquet`. The data dir is the one
the caller names; else `$SGPA_DATA`, else the cache, split by split. `prepare` fills the cache from official
addresses.
"""

import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sgpa.core.errors import CheckpointError, InputError
from sgpa.core.files import read_json, write_json
from sgpa.data import convert, fetch

MANIFEST = "manifest.json"  # written last: what was prepared, from what, with checksums
SUMS = "SHA256SUMS"  # lines of `<sha256>  <name>/<file>`, in the data dir
Progress = Callable[[str, int, int], None]  # stage, done, total (0 where it is unknown)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A public data set: the rows and columns it must have, its terms, and its official archive.

    `md5` is the published checksum of the archive at `url`, empty where none is published. Sets with an empty
    `url` cannot be fetched; `by_hand` says why and what to bring instead.
    """

    what: str
    rows: Mapping[str, int]  # of each split, whole
    columns: tuple[str, ...]
    terms: str
    url: str = ""
    md5: str = ""
    by_hand: str = ""
    partial: bool = False  # a subset will do: the set is only told apart from another one, with weights

    @property
    def archive(self) -> str:
        """File name of the official archive, empty where there is none."""
        return self.url.rpartition("/")[2]

    def accepts(self, rows: int, expected: int) -> bool:
        """Whether so many rows will do for a split that has `expected` when whole."""
        return 1 <= rows <= expected if self.partial else rows == expected


CIFAR_TERMS = "cite Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009"
TORONTO = "https://www.cs.toronto.edu/~kriz"

SOURCES: Mapping[str, Source] = {
    "cifar10": Source(
        what="photographs 32 x 32, 10 classes",
        rows={"train": 50_000, "test": 10_000},
        columns=("img", "label"),
        terms=CIFAR_TERMS,
        url=f"{TORONTO}/cifar-10-binary.tar.gz",
        md5="c32a1d4ab5d03f1284b67883e8d87530",  # on the official page
    ),
    "cifar100": Source(
        what="photographs 32 x 32, 100 classes",
        rows={"train": 50_000, "test": 10_000},
        columns=("img", "fine_label", "coarse_label"),
        terms=CIFAR_TERMS,
        url=f"{TORONTO}/cifar-100-binary.tar.gz",
        md5="03b5dce01913d631647c71ecec9e9cb8",  # on the official page
    ),
    "svhn": Source(
        what="house numbers 32 x 32, out of distribution",
        rows={"test": 26_032},
        columns=("img", "label"),
        terms="non-commercial use; cite Netzer et al., Reading Digits in Natural Images, 2011",
        url="http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
        md5="eb5a983be6a315427106f1b164d9cef3",  # not on the official page; the one common loaders check
        partial=True,
    ),
    "mini_imagenet": Source(
        what="photographs 32 x 32, out of distribution",
        rows={"test": 60_000},
        columns=("img", "label"),
        terms="non-commercial research; cite Vinyals et al., Matching Networks, 2016",
        by_hand="it has no official download without pickles and no published checksum; bring a folder with "
        "one sub-folder of images per class: sgpa data prepare mini_imagenet --from FOLDER",
        partial=True,
    ),
    "imdb": Source(
        what="film reviews, positive or negative",
        rows={"train": 25_000, "test": 25_000},
        columns=("text", "label"),
        terms="cite Maas et al., Learning Word Vectors for Sentiment Analysis, 2011",
        url="https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
        md5="7c2ac02c03563afcf9b574c7e56c153a",  # not on the official page; the one common loaders check
    ),
    "cola": Source(
        what="sentences, acceptable or not",
        rows={"train": 8_551, "validation_in_domain": 527, "validation_out_of_domain": 516},
        columns=("sentence", "label", "idx", "source", "tokenized"),
        terms="research use, excerpts remain with their publishers; cite Warstadt et al., 2019",
        url="https://nyu-mll.github.io/CoLA/cola_public_1.1.zip",  # no checksum published; rows are counted
    ),
    "zinc": Source(
        what="molecules, constrained solubility",
        rows={"train": 10_000, "validation": 1_000, "test": 1_000},
        columns=("edge_index", "edge_attr", "node_feat", "num_nodes", "y"),
        terms="see the terms of ZINC; cite Irwin et al., 2012, and Dwivedi et al., 2023",
        by_hand="the benchmark is published as pickles, which are never opened, and without a checksum; "
        "bring Parquet files",
    ),
}


def cache_dir() -> Path:
    """Where prepared sets are kept: `$XDG_CACHE_HOME/sgpa`, or `~/.cache/sgpa`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sgpa"


def roots(data_dir: Path | None = None) -> list[Path]:
    """Directories to look in, in order. A directory the caller names is the only one."""
    if data_dir is not None:
        return [Path(data_dir)]
    named = os.environ.get("SGPA_DATA")
    return [Path(named), cache_dir()] if named else [cache_dir()]


def find(name: str, split: str, data_dir: Path | None = None) -> list[Path]:
    """Parquet files of a split in the hub's layout, `<data dir>/<name>/<split>-*-of-*.parquet`, in order."""
    places = roots(data_dir)
    for root in places:
        if files := sorted((root / name).glob(f"{split}-*-of-*.parquet")):
            _require_all_parts(files)
            return files
    looked = " or ".join(str(root / name) for root in places)
    here = places[0] / name / f"{split}-00000-of-00001.parquet"
    known = SOURCES.get(name)
    way = f"run `sgpa data prepare {name}`, or " if known and known.url else ""
    why = f" ({known.by_hand})" if known and known.by_hand else ""
    raise InputError(f"{name}: no {split} files in {looked}; {way}put them at {here}{why}")


def stamp(files: Sequence[Path]) -> list[list[str | int]]:
    """Name, size and time of change of each file: what is derived from files is kept under this."""
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]


def source(name: str) -> Source:
    """The entry of a set in the table; the error lists the names there are."""
    if name not in SOURCES:
        raise InputError(f"unknown data set {name!r}; known: {', '.join(SOURCES)}")
    return SOURCES[name]


def read_table(file: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """A Parquet file as a table; errors name the file, the missing column and what to do."""
    with _open(file) as parquet:
        if missing := [c for c in columns or () if c not in parquet.schema_arrow.names]:
            have = ", ".join(parquet.schema_arrow.names)
            raise InputError(f"{file} has no column {', '.join(missing)} (it has {have})")
        try:
            return parquet.read(columns=columns)
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(_damaged(file, error)) from None


@dataclass(frozen=True)
class Checked:
    """What `verify` saw of one split. No files: the split is not there."""

    split: str
    expected: int
    rows: int = 0
    files: tuple[Path, ...] = ()
    checksums: int = 0  # files whose checksum is known and right


def verify(name: str, data_dir: Path | None = None, *, checksums: bool = True) -> list[Checked]:
    """Check files, rows, columns and, where `SHA256SUMS` or a manifest has them, checksums of every split.

    Missing splits are reported, anything wrong is an `InputError` that names the file.
    """
    known = source(name)
    checked = []
    for split, expected in known.rows.items():
        try:
            files = find(name, split, data_dir)
        except InputError:
            if any(any((root / name).glob(f"{split}-*-of-*.parquet")) for root in roots(data_dir)):
                raise  # there, but with parts missing
            checked.append(Checked(split, expected))
            continue
        rows = sum(_rows(file, known.columns) for file in files)
        if not known.accepts(rows, expected):
            least = "1 to " if known.partial else ""
            again = " and ".join(str(file) for file in files)
            raise InputError(
                f"{name} {split} has {rows:,} rows, expected {least}{expected:,}; replace {again}"
            )
        sums = _checksums(files[0].parent) if checksums else {}
        for file in files:
            if file.name in sums and fetch.digest(file, "sha256") != sums[file.name]:
                raise InputError(f"{file}: its SHA-256 is not the listed one; delete it and {_again(file)}")
        checked.append(Checked(split, expected, rows, tuple(files), sum(f.name in sums for f in files)))
    if not any(part.files for part in checked):
        find(name, next(iter(known.rows)), data_dir)  # raises, saying where files belong
    return checked


def prepare(
    name: str,
    data_dir: Path | None = None,
    *,
    own_copy: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Make a set ready and return its folder: fetch the official archive, check it, convert it to Parquet.

    Does nothing where the set is complete. `own_copy` is an archive (or, for mini-ImageNet, a folder) the
    user has. Splits appear whole or not at all, and the manifest last.
    """
    known = source(name)
    if own_copy is None and (folder := _complete(name, data_dir)):
        return folder
    root = Path(data_dir) if data_dir is not None else cache_dir()
    if own_copy is None and not known.url:
        where = root / name / f"{next(iter(known.rows))}-00000-of-00001.parquet"
        raise InputError(f"{name}: {known.by_hand}; put Parquet files at {where}")
    if name not in convert.READERS:
        raise InputError(f"{name}: {known.by_hand} with columns {', '.join(known.columns)} in {root / name}")
    archive = own_copy or root / "downloads" / known.archive
    fetched = own_copy is None and not archive.exists()
    if fetched:
        fetch.fetch(known.url, archive, md5=known.md5, progress=_stage(progress, "fetch"))
    elif known.md5 and fetch.digest(archive, "md5") != known.md5:
        raise InputError(
            f"{archive}: not the published MD5 {known.md5}; delete it and fetch {known.url} again"
        )
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=root) as staging:
        written = convert.convert(name, archive, Path(staging), _stage(progress, "convert"))
        _publish(name, written, root / name, known.url if own_copy is None else archive.name)
    if fetched:
        archive.unlink()
    return root / name


def _publish(name: str, written: Mapping[str, Path], folder: Path, origin: str) -> None:
    """Count the rows of converted files, move them into `folder`, and write the manifest."""
    known = source(name)
    entries: dict[str, Any] = {}
    for split, expected in known.rows.items():
        rows = _rows(written[split], known.columns) if split in written else 0
        if not known.accepts(rows, expected):
            raise InputError(
                f"{name}: {origin} holds {rows:,} {split} rows, expected {expected:,}; fetch it again"
            )
        entries[written[split].name] = {"rows": rows, "sha256": fetch.digest(written[split], "sha256")}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    for file in written.values():
        os.replace(file, folder / file.name)
    write_json(folder / MANIFEST, {"set": name, "origin": origin, "files": entries, "terms": known.terms})


def _complete(name: str, data_dir: Path | None) -> Path | None:
    """The folder of the first split, if every split is there with the rows it must have."""
    try:
        checked = verify(name, data_dir, checksums=False)
    except InputError:
        return None
    return checked[0].files[0].parent if all(part.files for part in checked) else None


def _require_all_parts(files: Sequence[Path]) -> None:
    """`-00000-of-00004` calls for three more."""
    parts = {
        tuple(map(int, m.groups())) for f in files if (m := re.search(r"-(\d+)-of-(\d+)\.parquet$", f.name))
    }
    totals = {total for _, total in parts}
    if len(totals) > 1:
        raise InputError(
            f"{files[0].parent} holds the same split twice, in {sorted(totals)} parts; delete one"
        )
    for total in totals:
        if missing := sorted(set(range(total)) - {part for part, _ in parts}):
            lost = re.sub(r"-\d+-of-", f"-{missing[0]:05d}-of-", files[0].name)
            raise InputError(
                f"{files[0].parent / lost} is missing ({len(files)} of {total} parts); {_again(files[0])}"
            )


def _open(file: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except FileNotFoundError:
        raise InputError(f"{file} does not exist") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(_damaged(file, error)) from None


def _rows(file: Path, columns: Sequence[str]) -> int:
    with _open(file) as parquet:
        if missing := [c for c in columns if c not in parquet.schema_arrow.names]:
            have = ", ".join(parquet.schema_arrow.names)
            raise InputError(f"{file} has no column {', '.join(missing)} (it has {have}); {_again(file)}")
        return int(parquet.metadata.num_rows)


def _damaged(file: Path, error: Exception) -> str:
    reason = str(error).partition("\n")[0].rstrip(".")
    return f"{file} was cut short or damaged ({reason}); delete it and {_again(file)}"


def _again(file: Path) -> str:
    known = SOURCES.get(file.parent.name)
    return f"run `sgpa data prepare {file.parent.name}`" if known and known.url else "copy it again"


def _checksums(folder: Path) -> dict[str, str]:
    """SHA-256 by file name, from the manifest of the folder and the `SHA256SUMS` of the data dir."""
    sums: dict[str, str] = {}
    with suppress(CheckpointError, KeyError, TypeError):  # no manifest, or not ours
        sums |= {name: entry["sha256"] for name, entry in read_json(folder / MANIFEST)["files"].items()}
    listing = folder.parent / SUMS
    for line in listing.read_text(encoding="utf-8").splitlines() if listing.exists() else ():
        digest, _, path = line.partition(" ")
        place = Path(path.strip().removeprefix("*"))
        if place.parent.name == folder.name:
            sums[place.name] = digest.lower()
    return sums


def _stage(progress: Progress | None, name: str) -> fetch.Progress | None:
    return None if progress is None else lambda done, total: progress(name, done, total)
