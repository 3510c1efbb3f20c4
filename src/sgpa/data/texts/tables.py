"""Texts and labels from a table that a user brings."""

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sgpa.core.errors import MOST_LISTED, InputError
from sgpa.data.tables import ROWS, Table, choose_column, read_columns

log = logging.getLogger(__name__)

TEXT_COLUMNS = ("text", "sentence", "review", "content", "body", "document", "comment", "message", "tweet")
WHOLE = re.compile(r"([+-]?\d+)(?:\.0*)?")  # a whole number, also with zeros behind the point
LABEL_COLUMNS = ("label", "labels", "class", "category", "target", "sentiment", "y")


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
    name = choose_column(path, table, label_column, LABEL_COLUMNS, "label")
    if table[name] is texts:
        raise InputError(f"{path}: column {name!r} cannot be both the text and the label; name two columns")
    values = _labels(path, name, table[name])
    classes = _ordered(values)
    _warn_of_case(path, classes)
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
    name = choose_column(path, table, column, common, what)
    for value in table[name]:
        if value is not None and not isinstance(value, str):
            raise InputError(
                f"{path}: column {name!r} holds {type(value).__name__} values, not text; "
                f"name the column that holds the {what} with {what}_column"
            )
    empty = [row for row, value in enumerate(table[name], 1) if value is None or not value.strip()]
    if empty and not keep_empty:
        raise InputError(f"{path}, {_rows(empty)}: the {what} is empty ({ROWS}); {_advice(empty)}")
    return table[name]


def _rows(numbers: Sequence[int]) -> str:
    """The first of some rows, and the number of the others."""
    more = f" and {len(numbers) - MOST_LISTED} more" if len(numbers) > MOST_LISTED else ""
    return f"row{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:MOST_LISTED]))}{more}"


def _advice(numbers: Sequence[int]) -> str:
    return "fill it in or delete the row" + ("s" if len(numbers) > 1 else "")


def _labels(path: Path, column: str, values: Sequence[Any]) -> list[str]:
    """Labels as text; every row has one. Where all are whole numbers, 1, 1.0, "1" and "1.0" are one class."""
    empty = [
        row
        for row, value in enumerate(values, 1)
        if value is None or str(value).strip().lower() in ("", "nan")
    ]
    if empty:
        raise InputError(f"{path}, {_rows(empty)}: no label in column {column!r} ({ROWS}); {_advice(empty)}")
    texts = [_label(value) for value in values]
    whole = [WHOLE.fullmatch(text) for text in texts]
    return [match[1] for match in whole if match] if all(whole) else texts


def _label(value: Any) -> str:
    """A label as text; the numbers 1 and 1.0 are the same class."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


def _warn_of_case(path: Path, classes: Sequence[str]) -> None:
    """Say where two classes differ in upper and lower case only, which is seldom meant."""
    first: dict[str, str] = {}
    for name in classes:
        if (other := first.setdefault(name.lower(), name)) != name:
            log.warning("%s: %r and %r are read as two classes; they differ in case only", path, other, name)


def _ordered(labels: Sequence[str]) -> list[str]:
    classes = sorted(set(labels))
    try:
        return sorted(classes, key=float)
    except ValueError:
        return classes
