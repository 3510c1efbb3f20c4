"""From one record per number to tables: mean and standard error over seeds of every row and column.

Rows are (attention, method), columns are metrics. `render` writes them as Markdown, HTML and for a terminal.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sgpa.core.errors import InputError
from sgpa.report.names import Key, Task, key_order, metric, metric_order, sentence_case, shift_name, task_of

Record = Mapping[str, Any]

FIELDS = ("dataset", "evaluation", "attention", "method", "metric", "value", "seed")
LARGEST = 1e100  # of a score: squares of larger numbers overflow


@dataclass(frozen=True)
class Cell:
    """Mean over n seeds and its standard error, s / sqrt(n) with s over n - 1; None for one seed."""

    mean: float
    error: float | None
    n: int
    by_seed: Mapping[Any, float] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Published(Cell):
    """A printed value; `doubtful` if it cannot be correct."""

    doubtful: bool = False


@dataclass(frozen=True)
class Column:
    """What a column measures; `group` and `label` only set its title."""

    evaluation: str
    shift: str
    metric: str
    group: str = field(default="", compare=False)
    label: str = field(default="", compare=False)

    @property
    def heading(self) -> str:
        """The label if one was given, else the metric's name, unit and arrow."""
        return self.label or metric(self.metric).heading

    @property
    def title(self) -> str:
        """Group and heading in one line."""
        return f"{self.group}: {self.heading}" if self.group else self.heading


CellKey = tuple[Key, Column]
Cells = Mapping[CellKey, Cell]


@dataclass(frozen=True)
class Table:
    """Rows by columns; any pair may be missing in `cells`. `paper` holds published values, `marks` stars.

    In a `signed` table the values are differences: they are printed with their sign, and none is best.
    """

    rows: tuple[Key, ...]
    columns: tuple[Column, ...]
    cells: Cells
    paper: Mapping[CellKey, Published] = field(default_factory=dict)
    marks: Mapping[CellKey, str] = field(default_factory=dict)  # of significance
    signed: bool = False

    def best(self, column: Column) -> set[Key]:
        """Rows that print the best value of a column; none when there is nothing to compare."""
        shape = metric(column.metric)
        means = {row: self.cells[row, column].mean for row in self.rows if (row, column) in self.cells}
        if self.signed or len(means) < 2 or shape.higher_is_better is None:
            return set()
        top = (max if shape.higher_is_better else min)(means.values())
        return {row for row, mean in means.items() if shape.text(mean) == shape.text(top)}


def tasks(records: Iterable[Record]) -> list[Task]:
    """Distinct (data set, augmentation) pairs in the order they come."""
    return list(dict.fromkeys(map(_task, records)))


def _task(record: Record) -> Task:
    """The task of a record that has every field it needs."""
    absent = [name for name in FIELDS if name not in record]
    if absent:
        raise InputError(f"a record lacks {', '.join(absent)}: {dict(record)}")
    return task_of(record["dataset"], record.get("augmentation"))


def summarise(by_seed: Mapping[Any, float]) -> Cell:
    """Mean, standard error and number of values.

    >>> summarise({0: 1.0, 1: 3.0})
    Cell(mean=2.0, error=1.0, n=2)
    """
    values, n = list(by_seed.values()), len(by_seed)
    mean = math.fsum(values) / n
    error = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n) if n > 1 else None
    return Cell(mean, error, n, by_seed)


def aggregate(records: Iterable[Record], task: Task | None = None) -> Cells:
    """One `Cell` per (row, column) over seeds, of one task or of all records when they share one.

    Records whose value is null or not finite are left out.
    """
    values: dict[CellKey, dict[Any, float]] = {}
    for r in records:
        own = _task(r)
        if task is not None and own != task:
            continue
        if r["value"] is None or not math.isfinite(r["value"]):
            continue
        column = Column(r["evaluation"], r.get("shift") or "", r["metric"])
        seeds = values.setdefault(((r["attention"] or "", r["method"]), column), {})
        if r["seed"] in seeds:
            raise InputError(
                f"two values of {r['metric']} for {r['method']}, shift {column.shift!r}, "
                f"seed {r['seed']}; keep one"
            )
        if abs(r["value"]) > LARGEST:
            raise InputError(f"{r['metric']} of {r['method']} is {r['value']:.3g}; the results were damaged")
        seeds[r["seed"]] = float(r["value"])
    return {place: summarise(seeds) for place, seeds in values.items()}


def ranked(cells: Cells, column: Column) -> list[tuple[Key, Cell]]:
    """Rows of a column from best to worst; none where neither direction is better."""
    higher = metric(column.metric).higher_is_better
    rows = [] if higher is None else key_order(row for row, c in cells if c == column)
    scored = [(row, cells[row, column]) for row in rows]
    return sorted(scored, key=lambda row: row[1].mean, reverse=bool(higher))


def columns_of(cells: Cells, evaluation: str) -> list[Column]:
    """Columns of one evaluation, by shift in the order they come, metrics in their usual order."""
    columns = list(dict.fromkeys(column for _, column in cells if column.evaluation == evaluation))
    shifts = list(dict.fromkeys(column.shift for column in columns))
    order = metric_order(column.metric for column in columns)
    return sorted(columns, key=lambda column: (shifts.index(column.shift), order.index(column.metric)))


def make_table(cells: Cells, columns: Iterable[Column]) -> Table:
    """The table of the columns that hold anything, with the rows that hold anything in them."""
    held = {column for _, column in cells}
    kept = tuple(column for column in columns if column in held)
    rows = tuple(key_order(row for row, column in cells if column in kept))
    return Table(rows, kept, cells)


def evaluation_table(cells: Cells, evaluation: str) -> Table:
    """All metrics of one evaluation, grouped by shift where there is one."""
    return make_table(
        cells,
        (
            Column(c.evaluation, c.shift, c.metric, sentence_case(shift_name(c.shift)) if c.shift else "")
            for c in columns_of(cells, evaluation)
        ),
    )
