"""The paper's data sets: a table of them, where their files are searched, and checks of those files.

Files have the hub's layout, `<data dir>/<name>/<split>-NNNNN-of-NNNNN.parquet`. The data dir is the one the
caller names; otherwise each split is searched in `$SGPA_DATA`, then in the cache. `prepare` fills the cache.
"""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq

from sgpa.core.errors import CheckpointError, InputError
from sgpa.core.files import file_digest, read_json


class ManifestFile(TypedDict):
    """A file in `manifest.json`."""

    sha256: str


class Manifest(TypedDict):
    """What is read of `manifest.json`."""

    files: dict[str, ManifestFile]


MANIFEST = "manifest.json"  # written last by `prepare`: origin, rows and checksums
SUMS = "SHA256SUMS"  # lines of `<sha256>  <name>/<file>`, in the data dir


@dataclass(frozen=True, kw_only=True)
class Source:
    """A public data set: the rows and columns it must have, its terms, and its official archive.

    `md5` is the published checksum of the archive at `url`, empty where none is published. Sets with an empty
    `url` cannot be fetched; `by_hand` gives the reason and what to do instead.
    """

    what: str
    rows: Mapping[str, int]  # of each split, whole
    columns: tuple[str, ...]
    terms: str
    url: str = ""
    md5: str = ""
    by_hand: str = ""
    partial: bool = False  # a subset is accepted: OOD sets are weighted to the full size

    @property
    def archive(self) -> str:
        """File name of the official archive, empty where there is none."""
        return self.url.rpartition("/")[2]

    def accepts(self, rows: int, expected: int) -> bool:
        """Whether `rows` is an accepted size of a split whose full size is `expected`."""
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
    """The folder of prepared sets and derived files: `$XDG_CACHE_HOME/sgpa`, or `~/.cache/sgpa`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sgpa"


def roots(data_dir: Path | None = None) -> list[Path]:
    """Directories that are searched, in order: `data_dir` alone, or `$SGPA_DATA` and the cache."""
    if data_dir is not None:
        return [Path(data_dir)]
    from_environment = os.environ.get("SGPA_DATA")
    return [Path(from_environment), cache_dir()] if from_environment else [cache_dir()]


def find(name: str, split: str, data_dir: Path | None = None) -> list[Path]:
    """Parquet files of a split in the hub's layout, `<data dir>/<name>/<split>-*-of-*.parquet`, in order."""
    searched = roots(data_dir)
    for root in searched:
        if files := sorted((root / name).glob(f"{split}-*-of-*.parquet")):
            _require_all_parts(files)
            return files
    folders = " or ".join(str(root / name) for root in searched)
    file = searched[0] / name / f"{split}-00000-of-00001.parquet"
    known = SOURCES.get(name)
    command = f"run `sgpa data prepare {name}`, or " if known and known.url else ""
    reason = f" ({known.by_hand})" if known and known.by_hand else ""
    raise InputError(f"{name}: no {split} files in {folders}; {command}put them at {file}{reason}")


def stamp(files: Sequence[Path]) -> list[list[str | int]]:
    """Name, size and modification time of each file: the cache key of what is derived from them."""
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]


def source(name: str) -> Source:
    """The entry of a set in the table; an unknown name is an error that lists the known ones."""
    if name not in SOURCES:
        raise InputError(f"unknown data set {name!r}; known: {', '.join(SOURCES)}")
    return SOURCES[name]


def read_table(file: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """A Parquet file as a table, with the given columns or all; errors name the file and the column."""
    with _open(file) as parquet:
        if missing := [c for c in columns or () if c not in parquet.schema_arrow.names]:
            have = ", ".join(parquet.schema_arrow.names)
            raise InputError(f"{file} has no column {', '.join(missing)} (it has {have})")
        try:
            return parquet.read(columns=columns)
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(_damaged(file, error)) from None


def count_rows(file: Path, columns: Sequence[str]) -> int:
    """Rows of a Parquet file that must have the given columns."""
    with _open(file) as parquet:
        if missing := [c for c in columns if c not in parquet.schema_arrow.names]:
            have = ", ".join(parquet.schema_arrow.names)
            raise InputError(f"{file} has no column {', '.join(missing)} (it has {have}); {_again(file)}")
        return int(parquet.metadata.num_rows)


@dataclass(frozen=True)
class Checked:
    """Result of `verify` for one split. Without files, the split is missing."""

    split: str
    expected: int
    rows: int = 0
    files: tuple[Path, ...] = ()
    checksums: int = 0  # files with a known checksum, all of which were right


def verify(name: str, data_dir: Path | None = None, *, checksums: bool = True) -> list[Checked]:
    """Check the files, rows, columns and (from `SHA256SUMS` or the manifest) checksums of every split.

    Args:
        name: A key of `SOURCES`.
        data_dir: The only directory to search; by default `$SGPA_DATA` and the cache.
        checksums: Whether to compare SHA-256 sums, which reads every file.

    Returns:
        One entry a split; a missing split has no files.

    Raises:
        InputError: A file is damaged, has other rows or columns, or no split is there at all.

    Example:
        >>> [(part.split, part.rows) for part in verify("cola")]  # doctest: +SKIP
        [('train', 8551), ('validation_in_domain', 527), ('validation_out_of_domain', 516)]
    """
    known = source(name)
    checked = []
    for split, expected in known.rows.items():
        try:
            files = find(name, split, data_dir)
        except InputError:
            if any(any((root / name).glob(f"{split}-*-of-*.parquet")) for root in roots(data_dir)):
                raise  # some parts are missing
            checked.append(Checked(split, expected))
            continue
        rows = sum(count_rows(file, known.columns) for file in files)
        if not known.accepts(rows, expected):
            least = "1 to " if known.partial else ""
            named = " and ".join(str(file) for file in files)
            raise InputError(
                f"{name} {split} has {rows:,} rows, expected {least}{expected:,}; replace {named}"
            )
        sums = _checksums(files[0].parent) if checksums else {}
        for file in files:
            if file.name in sums and file_digest(file) != sums[file.name]:
                raise InputError(f"{file}: its SHA-256 is not the listed one; delete it and {_again(file)}")
        checked.append(Checked(split, expected, rows, tuple(files), sum(f.name in sums for f in files)))
    if not any(part.files for part in checked):
        find(name, next(iter(known.rows)), data_dir)  # raises an error that names the folders
    return checked


@dataclass(frozen=True)
class SetState:
    """Whether a data set is on this machine. `rows` has (rows present, rows in all) of every split."""

    name: str
    what: str
    terms: str
    rows: dict[str, tuple[int, int]]
    folder: Path | None = None
    problem: str = ""

    @property
    def prepared(self) -> bool:
        """Whether every split is there."""
        return not self.problem and all(present for present, _ in self.rows.values())

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        rows = {split: {"found": present, "whole": whole} for split, (present, whole) in self.rows.items()}
        return {
            "name": self.name,
            "what": self.what,
            "rows": rows,
            "found": str(self.folder) if self.folder else None,
            "prepared": self.prepared,
            "problem": self.problem or None,
            "terms": self.terms,
        }


def state(name: str, data_dir: Path | None = None) -> SetState:
    """Where a data set is and how much of it; what is wrong with it is a field, not an error."""
    known = source(name)
    nothing = {split: (0, whole) for split, whole in known.rows.items()}
    folder = next((root / name for root in roots(data_dir) if any((root / name).glob("*.parquet"))), None)
    if folder is None:
        return SetState(name, known.what, known.terms, nothing)
    try:
        checked = verify(name, data_dir, checksums=False)
    except InputError as error:
        return SetState(name, known.what, known.terms, nothing, folder, str(error))
    rows = {part.split: (part.rows, part.expected) for part in checked}
    return SetState(name, known.what, known.terms, rows, folder)


def _require_all_parts(files: Sequence[Path]) -> None:
    """Refuse `-00000-of-00004` where one of the other three is missing."""
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


def _damaged(file: Path, error: Exception) -> str:
    reason = str(error).partition("\n")[0].rstrip(".")
    return f"{file} was cut short or damaged ({reason}); delete it and {_again(file)}"


def _again(file: Path) -> str:
    known = SOURCES.get(file.parent.name)
    return f"run `sgpa data prepare {file.parent.name}`" if known and known.url else "copy it again"


def _checksums(folder: Path) -> dict[str, str]:
    """SHA-256 by file name, from the manifest of the folder and the `SHA256SUMS` of the data dir."""
    sums: dict[str, str] = {}
    with suppress(CheckpointError):  # no manifest, or of another program
        files = read_json(folder / MANIFEST, Manifest)["files"]
        sums |= {name: entry["sha256"] for name, entry in files.items()}
    listing = folder.parent / SUMS
    for line in listing.read_text(encoding="utf-8").splitlines() if listing.exists() else ():
        checksum, _, path = line.partition(" ")
        file = Path(path.strip().removeprefix("*"))
        if file.parent.name == folder.name:
            sums[file.name] = checksum.lower()
    return sums
