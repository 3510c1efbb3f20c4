"""Texts and labels from a file that a user brings: Parquet, CSV or TSV.

In messages, row 1 is the first below the header.
"""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import torch
from torch import Tensor

from sgpa.core.errors import InputError, first_line
from sgpa.core.files import check_file_name

TEXT_COLUMNS = ("text", "sentence", "review", "content", "body", "document", "comment", "message", "tweet")
LABEL_COLUMNS = ("label", "labels", "class", "category", "target", "sentiment", "y")
ROWS = "row 1 is the first below the header"
Table = dict[str, list[Any]]  # column name -> its values, row by row; None where a value is missing


def read_texts(
    path: str | Path, text_column: str | None = None, label_column: str | None = None
) -> tuple[list[str], Tensor, list[str]]:
    """Labelled texts of a file.

    Args:
        path: A .parquet, .csv or .tsv file.
        text_column: By default the first of `text`, `sentence`, `review`, ... that the file has.
        label_column: By default the first of `label`, `labels`, `class`, ... that the file has.

    Returns:
        Texts, labels [N] int64 and the class names in the order of the labels. Classes are ordered by number
        where all labels are whole numbers, by name otherwise.

    Example:
        >>> texts, labels, classes = read_texts("reviews.csv", label_column="stars")  # doctest: +SKIP
    """
    path = Path(path)
    table = read_columns(path)
    texts = _texts(path, table, text_column, TEXT_COLUMNS, "text")
    name = _column(path, table, label_column, LABEL_COLUMNS, "label")
    values = [_label(path, name, row, value) for row, value in enumerate(table[name], 1)]
    classes = _ordered(values)
    if len(classes) < 2:
        raise InputError(f"{path}: every row has the label {classes[0]!r}; a classifier needs two classes")
    if len(values) >= 10 and len(classes) > len(values) / 2:
        raise InputError(
            f"{path}: column {name!r} has {len(classes)} different values in {len(values)} rows; "
            "name the column that holds the class with label_column"
        )
    index = {label: i for i, label in enumerate(classes)}
    return texts, torch.tensor([index[value] for value in values]), classes


def read_unlabelled(
    path: str | Path,
    text_column: str | None = None,
    common: Sequence[str] = TEXT_COLUMNS,
    what: str = "text",
    *,
    keep_empty: bool = False,
) -> list[str]:
    """The texts of a file without labels; `common` are the column names to look for, `what` names a row.

    With `keep_empty`, a row without a text is an empty text instead of an error.
    """
    path = Path(path)
    table = read_columns(path)
    if keep_empty:
        table = {name: ["" if value is None else value for value in values] for name, values in table.items()}
    return _texts(path, table, text_column, common, what, keep_empty=keep_empty)


def _texts(
    path: Path,
    table: Table,
    column: str | None,
    common: Sequence[str],
    what: str,
    *,
    keep_empty: bool = False,
) -> list[str]:
    name = _column(path, table, column, common, what)
    for row, value in enumerate(table[name], 1):
        if value is not None and not isinstance(value, str):
            raise InputError(
                f"{path}: column {name!r} holds {type(value).__name__} values, not text; "
                f"name the column that holds the {what} with {what}_column"
            )
        if not keep_empty and (value is None or not value.strip()):
            raise InputError(f"{path}, row {row}: the {what} is empty ({ROWS}); fill it in or delete the row")
    return table[name]


def _column(path: Path, table: Table, given: str | None, common: Sequence[str], what: str) -> str:
    """The column the caller named, or the first common name that the file has."""
    if given is not None:
        if given not in table:
            raise InputError(f"{path} has no column {given!r}; its columns are {', '.join(table)}")
        return given
    lower = {name.strip().lower(): name for name in reversed(list(table))}  # the first of equal names wins
    for name in common:
        if name in lower:
            return lower[name]
    raise InputError(
        f"{path}: which column holds the {what}? Its columns are {', '.join(table)}; "
        f"name one with {what}_column, or call it {common[0]!r}"
    )


def _label(path: Path, column: str, row: int, value: Any) -> str:
    """A label as text; 1, 1.0 and "1" are the same class."""
    if value is None or (isinstance(value, float) and math.isnan(value)) or not str(value).strip():
        raise InputError(
            f"{path}, row {row}: no label in column {column!r} ({ROWS}); fill it in or delete the row"
        )
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


def _ordered(labels: Sequence[str]) -> list[str]:
    classes = sorted(set(labels))
    try:
        return sorted(classes, key=int)
    except ValueError:
        return classes


def read_columns(path: Path) -> Table:
    """All columns of a .parquet, .csv or .tsv file."""
    check_file_name(path)
    readers = {".parquet": _parquet, ".csv": _csv, ".tsv": _tsv, ".tab": _tsv}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            f"{path}: texts are read from .parquet, .csv and .tsv files; convert it to one of them"
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
        with path.open(encoding="utf-8-sig", newline="") as file:
            if delimiter is None:
                header = file.readline()
                delimiter = (
                    ";" if "," not in header and ";" in header else ","
                )  # some spreadsheets write semicolons
                file.seek(0)
            rows = csv.reader(file, delimiter=delimiter, quoting=quoting, strict=True)
            return _by_column(path, rows)
    finally:
        csv.field_size_limit(before)


def _by_column(path: Path, rows: Any) -> Table:
    names: list[str] = next(rows, [])
    if len(set(names)) != len(names):
        raise InputError(f"{path}: two columns have the same name in {', '.join(names)}; rename one")
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
