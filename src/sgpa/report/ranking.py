"""Average ranks of methods over tasks, and the table of them."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from sgpa.core.errors import InputError
from sgpa.report.names import CLEAN, DETECTION, ROBUSTNESS, corruption_type, metric, task_name, task_of
from sgpa.report.tables import Cell, CellKey, Column, Record, Table, make_table

FEWEST_METHODS, FEWEST_COLUMNS = 3, 2
RANKED = {
    CLEAN: ("Clean", ("accuracy", "nll", "ece")),
    ROBUSTNESS: ("Shifted", ("accuracy", "nll", "ece")),
    DETECTION: ("OOD detection", ("auroc", "aupr")),
}
Row = dict[str, Any]


def average_ranks(
    records: Iterable[Mapping[str, Any]], metric: str, *, higher_is_better: bool = True
) -> dict[str, float]:
    """Mean rank (1 = best, ties share) of every method over the tasks of `records`.

    A task is a (dataset, shift) pair; the seeds of a method are averaged first. Every method must have
    every task, otherwise ranks could not be compared.

    >>> rows = [{"dataset": "a", "shift": "b", "metric": "auroc", "method": m, "value": v}
    ...         for m, v in (("mle", 0.7), ("sgpa", 0.8))]
    >>> average_ranks(rows, "auroc")
    {'mle': 2.0, 'sgpa': 1.0}
    """
    values: dict[str, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if record["metric"] == metric:
            values[record["method"]][record["dataset"], record["shift"]].append(float(record["value"]))
    tasks = sorted({task for by_task in values.values() for task in by_task})
    for method, by_task in values.items():
        if missing := [task for task in tasks if task not in by_task]:
            raise InputError(
                f"{method} has no {metric} for {missing[0]}; ranks need every task of every method"
            )
    if not tasks:
        raise InputError(f"no record has the metric {metric}")
    means = [[np.mean(by_task[task]) for task in tasks] for by_task in values.values()]
    table = np.array(means)  # [methods, tasks]
    ranks = rankdata(-table if higher_is_better else table, axis=0)  # [methods, tasks]
    return dict(zip(values, ranks.mean(1).tolist(), strict=True))


def rank_table(records: Sequence[Record]) -> Table | None:
    """Average ranks for every evaluation and metric; None where too few methods share too few columns."""
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
    """Records of one metric in the form `average_ranks` reads.

    Attention and method become one name, data set and augmentation another. Single corruption types are
    left out: the mean over them is ranked.
    """
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
    """Rows of the columns that every method has, and the number of these columns.

    While the methods share fewer than two columns, the method with the fewest is left out.
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
