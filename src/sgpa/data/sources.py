"""Where the files of public data sets are searched, and checks of those files.

Files have the hub's layout, `<data dir>/<name>/<split>-NNNNN-of-NNNNN.parquet`. The data dir is the one the
caller names; otherwise each split is searched in `$SGPA_DATA`, then in the cache. `prepare` fills the cache.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq

from sgpa.core.errors import CheckpointError, InputError
from sgpa.core.files import file_digest, read_json
from sgpa.data.public_sets import SOURCES, source


class ManifestFile(TypedDict):
    """A file in `manifest.json`."""

    sha256: str


class Manifest(TypedDict):
    """What is read of `manifest.json`."""

    files: dict[str, ManifestFile]


MANIFEST = "manifest.json"  # written last by `prepare`: origin, rows and checksums
SUMS = "SHA256SUMS"  # lines of `<sha256>  <name>/<file>`, in the data dir


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
        name: A key of `sgpa.data.public_sets.SOURCES`.
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
