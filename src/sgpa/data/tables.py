"""Tables that a user brings, column by column: Parquet, CSV or TSV.

In messages, row 1 is the first below the header.
"""

import codecs
import csv
import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import pyarrow
import pyarrow.parquet

from sgpa.core.errors import InputError, first_line
from sgpa.core.files import check_file_name

log = logging.getLogger(__name__)

DELIMITERS = (",", ";", "\t")  # some spreadsheets write semicolons or tabs
COMPARED = 20  # rows of which a delimiter must make equally many columns
LONGEST, MOST = 60, 20  # characters of a column's name in a message, and columns
ROWS = "row 1 is the first below the header"
Table = dict[str, list[Any]]  # column name -> its values, row by row; None where a value is missing


def read_columns(path: Path) -> Table:
    """All columns of a .parquet, .csv or .tsv file."""
    check_file_name(path)
    readers = {".parquet": _parquet, ".csv": _csv, ".tsv": _tsv, ".tab": _tsv}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            f"{path}: tables are read from .parquet, .csv and .tsv files; convert it to one of them"
        )
    if not path.is_file():
        raise InputError(f"{path} does not exist, or is not a file; check the path")
    try:
        table = reader(path)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text (byte {error.start} of it); save it again with that encoding"
        ) from None
    except (pyarrow.ArrowException, OSError, csv.Error) as error:
        raise InputError(
            f"{path} cannot be read ({first_line(error)}); it is damaged or has the wrong ending"
        ) from None
    if not table or not len(next(iter(table.values()))):
        raise InputError(f"{path} has no rows below its header; nothing to read")
    return table


def _parquet(path: Path) -> Table:
    _check_names(path, pyarrow.parquet.read_schema(path).names)
    table = pyarrow.parquet.read_table(path)
    return {name: table.column(name).to_pylist() for name in table.column_names}


def _csv(path: Path) -> Table:
    return _delimited(path, None, csv.QUOTE_MINIMAL)


def _tsv(path: Path) -> Table:
    # quotes are plain characters here, as in most published TSV files: one stray quote at the start of a
    # text would otherwise swallow all rows up to the next one
    return _delimited(path, "\t", csv.QUOTE_NONE)


def _delimited(path: Path, delimiter: str | None, quoting: Any) -> Table:
    before = csv.field_size_limit(2**31 - 1)  # the default refuses long documents
    try:
        with path.open(encoding=_encoding(path), newline="") as file:
            if delimiter is None:
                delimiter = _delimiter(file)
                file.seek(0)
            rows = csv.reader(file, delimiter=delimiter, quoting=quoting, strict=True)
            return _by_column(path, rows)
    finally:
        csv.field_size_limit(before)


def _encoding(path: Path) -> str:
    """UTF-16 where the file begins with its byte order mark, as some spreadsheets write it; else UTF-8."""
    with path.open("rb") as file:
        start = file.read(2)
    return "utf-16" if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"


def _delimiter(file: TextIO) -> str:
    """What splits the header and the first rows into equally many columns, more than one; a comma if none."""
    for delimiter in DELIMITERS:
        file.seek(0)
        rows = filter(None, csv.reader(file, delimiter=delimiter, strict=True))
        with suppress(csv.Error):
            widths = {len(cells) for cells in islice(rows, COMPARED)}
            if len(widths) == 1 and widths != {1}:
                return delimiter
    file.seek(0)
    header = file.readline()
    return ";" if "," not in header and ";" in header else ","


def _by_column(path: Path, rows: Any) -> Table:
    names: list[str] = next(rows, [])
    _check_names(path, names)
    table: Table = {name: [] for name in names}
    count = 0
    for cells in rows:
        if not cells:  # blank lines are no rows
            continue
        count += 1
        if len(cells) != len(names):
            raise InputError(
                f"{path}, row {count}: {len(cells)} values for {len(names)} columns ({ROWS}); "
                "put quotes around texts that contain the separator"
            )
        for name, cell in zip(names, cells, strict=True):
            table[name].append(cell or None)
    return table


def _check_names(path: Path, names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise InputError(f"{path}: two columns have the same name in {_shown(names)}; rename one")


def choose_column(path: Path, table: Table, given: str | None, common: Sequence[str], what: str) -> str:
    """The column the caller named, or the first common name that the file has; one line names it if others
    would do too."""
    if given is not None:
        if given not in table:
            raise InputError(f"{path} has no column {given!r}; its columns are {_shown(table)}")
        return given
    lower = {name.strip().lower(): name for name in reversed(list(table))}  # the first of equal names wins
    if found := [lower[name] for name in common if name in lower]:
        if len(found) > 1:
            others = _shown(found[1:])
            log.warning("%s: the %s is read from column %r, not from %s", path, what, found[0], others)
        return found[0]
    raise InputError(
        f"{path}: which column holds the {what}? Its columns are {_shown(table)}; "
        f"name one with {what}_column, or call it {common[0]!r}"
    )


def _shown(names: Collection[str]) -> str:
    """The columns of a table in a message; without a header the names are whole texts."""
    short = [name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..." for name in names]
    short = [name if name.strip() else "(no name)" for name in short]
    more = f" and {len(short) - MOST} more" if len(short) > MOST else ""
    header = " (the first row must hold the names)" if any(len(name) > LONGEST for name in names) else ""
    return ", ".join(short[:MOST]) + more + header
