"""Tables of molecules that a user brings: a CSV or Parquet file with SMILES and targets."""

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from sgpa.core.errors import InputError
from sgpa.core.files import check_file_name
from sgpa.data.graphs.graph import Graph
from sgpa.data.graphs.smiles import draw, learn_vocabulary, to_graph
from sgpa.data.graphs.vocabulary import Vocabulary

SMILES_NAMES = ("smiles", "canonical_smiles", "smile", "molecule")  # column names, in any case
TARGET_NAMES = ("target", "y", "label", "value")
SHOWN = 3  # bad rows that an error lists
S = TypeVar("S")
T = TypeVar("T")


class Molecules(NamedTuple):
    """The content of a table of molecules."""

    graphs: list[Graph]
    targets: Tensor  # [N] float
    vocabulary: Vocabulary
    smiles: list[str]


def read_molecules(
    path: str | Path, smiles_column: str | None = None, target_column: str | None = None
) -> Molecules:
    """Labelled molecules of a CSV or Parquet file, and the vocabulary of their atoms.

    Args:
        path: The file. Rows in messages count from 1, without the header.
        smiles_column: By default the column called smiles, canonical_smiles, smile or molecule.
        target_column: By default the only other column, or the one called target, y, label or value.

    Returns:
        Graphs, targets [N], the vocabulary, most frequent atoms first, and the SMILES.

    Example:
        >>> graphs, targets, vocabulary, smiles = read_molecules("solubility.csv")  # doctest: +SKIP
    """
    path = Path(path)
    table = _table(path)
    smiles_column = smiles_column or _guess(path, table, SMILES_NAMES, "smiles_column")
    others = [name for name in table.column_names if name != smiles_column]
    only = others[0] if len(others) == 1 else None
    target_column = target_column or only or _guess(path, table, TARGET_NAMES, "target_column")
    smiles = _column(path, table, smiles_column)
    drawings = _each(path, smiles, draw)
    targets = _each(path, _column(path, table, target_column), _number)
    vocabulary = learn_vocabulary(drawings)
    graphs = [to_graph(drawing, vocabulary) for drawing in drawings]
    return Molecules(graphs, torch.tensor(targets, dtype=torch.float32), vocabulary, smiles)


def _table(path: Path) -> pa.Table:
    """A CSV or Parquet file with at least one row; the values of a CSV stay text."""
    check_file_name(path)
    try:
        kind = path.suffix.lower()
        if kind not in (".csv", ".parquet"):
            raise InputError("the name must end in .csv or .parquet")
        if not path.is_file():
            raise InputError("it does not exist, or is not a regular file")
        table = pq.read_table(path) if kind == ".parquet" else _csv(path)
    except (OSError, ValueError, csv.Error, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    if table.num_rows == 0:
        raise InputError(f"{path} has no rows")
    return table


def _csv(path: Path) -> pa.Table:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file, strict=True))
    while rows and not rows[-1]:  # blank lines at the end
        rows.pop()
    header = rows[0] if rows else []
    for i, row in enumerate(rows[1:], 1):
        if len(row) != len(header):
            raise InputError(f"row {i} has {len(row)} values, the header has {len(header)}")
    columns = [pa.array([row[j] for row in rows[1:]], pa.string()) for j in range(len(header))]
    return pa.table(columns, header)


def _guess(path: Path, table: pa.Table, known: Sequence[str], option: str) -> str:
    """The column with the first of the known names, in any case."""
    names: dict[str, str] = {name.lower(): name for name in reversed(table.column_names)}
    for name in known:
        if name in names:
            return names[name]
    raise InputError(
        f"{path}: no column is called {', '.join(known)}; name one of {', '.join(table.column_names)} "
        f"as {option}"
    )


def _column(path: Path, table: pa.Table, name: str) -> list[Any]:
    if table.column_names.count(name) != 1:
        raise InputError(f"{path}: no single column {name!r} among {', '.join(table.column_names)}")
    values: list[Any] = table[name].to_pylist()
    return values


def _each(path: Path, values: Sequence[Any], read: Callable[[Any], T]) -> list[T]:
    try:
        return read_each(((f"row {i}", value) for i, value in enumerate(values, 1)), read)
    except InputError as error:
        raise InputError(f"{path}, {error}") from None


def read_each(values: Iterable[tuple[str, S]], read: Callable[[S], T]) -> list[T]:
    """`read` applied to every (name, value); one error lists the first values that cannot be read."""
    results, bad = [], []
    for name, value in values:
        try:
            results.append(read(value))
        except InputError as error:
            bad.append(f"{name}: {error}")
    if bad:
        more = f"; and {len(bad) - SHOWN} more rows" if len(bad) > SHOWN else ""
        raise InputError("; ".join(bad[:SHOWN]) + more)
    return results


def _number(value: Any) -> float:
    if isinstance(value, list) and len(value) == 1:  # the hub's graph sets store targets so
        value = value[0]
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        what = "is missing" if value in (None, "") else f"{value!r} is not a finite number"
        raise InputError(f"the target {what}; correct it or remove the row")
    return number
