"""Average ranks over tasks: one line per method that sums up many columns."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sgpa.report.average_ranks import average_ranks
from sgpa.report.names import CLEAN, DETECTION, ROBUSTNESS, corruption_type, metric, task_name, task_of
from sgpa.report.tables import Cell, CellKey, Column, Record, Table, make_table

FEWEST_METHODS, FEWEST_COLUMNS = 3, 2
RANKED = {
    CLEAN: ("Clean", ("accuracy", "nll", "ece")),
    ROBUSTNESS: ("Shifted", ("accuracy", "nll", "ece")),
    DETECTION: ("Unfamiliar", ("auroc", "aupr")),
}
Row = dict[str, Any]


def rank_table(records: Sequence[Record]) -> Table | None:
    """Average ranks of every evaluation and metric; None where too few methods share too few columns."""
    cells: dict[CellKey, Cell] = {}
    columns = []
    for evaluation, (group, names) in RANKED.items():
        for name in names:
            rows, count = _complete(_rows(records, evaluation, name))
            if not rows:
                continue
            higher = metric(name).higher_is_better is True
            column = Column("rank", f"{evaluation}:{name}", "rank", group, f"{metric(name).name} ({count})")
            columns.append(column)
            for method, rank in average_ranks(rows, name, higher_is_better=higher).items():
                attention, _, own = method.partition("\t")
                cells[(attention, own), column] = Cell(rank, None, count)
    return make_table(cells, columns) if columns else None


def _rows(records: Iterable[Record], evaluation: str, name: str) -> list[Row]:
    """Records of one metric as `average_ranks` reads them: attention and method are one name, so are data
    set and augmentation; single corruption types are left to the mean over them."""
    return [
        {
            "dataset": task_name(task_of(r["dataset"], r.get("augmentation"))),
            "shift": r.get("shift") or "",
            "method": f"{r['attention'] or ''}\t{r['method']}",
            "metric": name,
            "value": r["value"],
        }
        for r in records
        if r["evaluation"] == evaluation
        and r["metric"] == name
        and r["value"] is not None
        and math.isfinite(r["value"])
        and not corruption_type(r.get("shift") or "")
    ]


def _complete(rows: list[Row]) -> tuple[list[Row], int]:
    """Rows of the columns that every method has, and how many columns that are.

    Where methods share fewer than two columns, the one with the fewest is left out, until enough are shared
    or too few methods are left.
    """
    held: dict[str, set[tuple[str, str]]] = {}
    for row in rows:
        held.setdefault(row["method"], set()).add((row["dataset"], row["shift"]))
    while len(held) >= FEWEST_METHODS:
        shared = _shared(held)
        if len(shared) >= FEWEST_COLUMNS:
            kept = [r for r in rows if r["method"] in held and (r["dataset"], r["shift"]) in shared]
            return kept, len(shared)
        del held[min(held, key=lambda method: len(held[method]))]
    return [], 0


def _shared(held: Mapping[str, set[tuple[str, str]]]) -> set[tuple[str, str]]:
    return set.intersection(*held.values())
