"""Tables of molecules that a user brings: SMILES and targets."""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from sgpa.core.errors import InputError, first_of
from sgpa.data.graphs.graph import Graph
from sgpa.data.graphs.smiles import draw, learn_vocabulary, to_graph
from sgpa.data.graphs.vocabulary import Vocabulary
from sgpa.data.tables import choose_column, read_columns

log = logging.getLogger(__name__)

SMILES_NAMES = ("smiles", "canonical_smiles", "smile", "molecule")  # column names, in any case
TARGET_NAMES = ("target", "y", "label", "value")
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
    """Labelled molecules of a Parquet, CSV or TSV file, and the vocabulary of their atoms.

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
    table = read_columns(path)
    smiles_column = choose_column(path, table, smiles_column, SMILES_NAMES, "smiles")
    others = [name for name in table if name != smiles_column]
    only = others[0] if len(others) == 1 else None
    if target_column is None and only is not None and only.strip().lower() not in TARGET_NAMES:
        log.warning("%s: the target is read from the only other column, %r", path, only)
    target_column = choose_column(path, table, target_column or only, TARGET_NAMES, "target")
    smiles = table[smiles_column]
    drawings = _each(path, smiles, draw)
    targets = _each(path, table[target_column], _number)
    vocabulary = learn_vocabulary(drawings)
    graphs = [to_graph(drawing, vocabulary) for drawing in drawings]
    return Molecules(graphs, torch.tensor(targets, dtype=torch.float32), vocabulary, smiles)


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
        raise InputError(first_of(bad, "rows"))
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
