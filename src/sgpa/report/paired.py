"""Paired comparison of methods that share seeds: effects common to both cancel in the difference."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import ttest_rel

from sgpa.report.names import Key, is_ensemble, key_order
from sgpa.report.tables import Cell, Cells, Column, Table, make_table, ranked

FEWEST = 3  # seeds for a test; two differences are too few to estimate their spread
LEVEL = 0.05
MARK = "*"


@dataclass(frozen=True)
class Difference:
    """Mean over n shared seeds of a_s - b_s, its standard error, and the p-value of its being zero."""

    mean: float
    error: float | None  # None for one seed
    p: float | None  # None for fewer than `FEWEST` seeds, or where all differences are the same number
    n: int

    @property
    def significant(self) -> bool:
        """Whether p is below `LEVEL`."""
        return self.p is not None and self.p < LEVEL


def paired_difference(a: Mapping[Any, float], b: Mapping[Any, float]) -> Difference | None:
    """a minus b over the seeds both have, with a two-sided paired t-test; None where they share no seed.

    Differences that are all zero give p = 1. Differences that are all the same number other than zero have
    no spread to test against (t would be infinite): they give no p-value.

    >>> difference = paired_difference({0: 1.0, 1: 2.0, 2: 6.0}, {0: 0.0, 1: 0.0, 2: 3.0})
    >>> difference.mean, difference.n, round(difference.p, 4)
    (2.0, 3, 0.0742)
    """
    seeds = [seed for seed in a if seed in b]
    if not seeds:
        return None
    x, y = (np.array([values[seed] for seed in seeds], dtype=np.float64) for values in (a, b))
    d, n = x - y, len(seeds)
    mean = math.fsum(d) / n
    if n == 1:
        return Difference(mean, None, None, 1)
    error = float(d.std(ddof=1)) / math.sqrt(n)
    rounding = 1e-12 * float(np.abs([x, y]).max())  # spread below this is only how numbers are stored
    if np.abs(d).max() <= rounding:
        return Difference(0.0, 0.0, 1.0 if n >= FEWEST else None, n)
    if n < FEWEST or error <= rounding:
        return Difference(mean, error, None, n)
    return Difference(mean, error, float(ttest_rel(x, y).pvalue), n)


def against_mle(cells: Cells, column: Column) -> dict[Key, Difference]:
    """Every single model minus the MLE of its attention, where both were measured on common seeds.

    The members of an ensemble have seeds of their own: it shares its seed with a single model by name only.
    """
    rows = key_order(row for row, c in cells if c == column)
    differences = {}
    for attention, method in rows:
        if method != "mle" and not is_ensemble(method) and (attention, "mle") in rows:
            a, b = (cells[(attention, m), column].by_seed for m in (method, "mle"))
            if (difference := paired_difference(a, b)) is not None:
                differences[attention, method] = difference
    return differences


def with_marks(table: Table) -> Table:
    """The table with a mark at every cell that differs from MLE of the same attention."""
    marks = {
        (row, column): MARK
        for column in table.columns
        for row, difference in against_mle(table.cells, column).items()
        if difference.significant
    }
    return replace(table, marks=marks)


def difference_table(table: Table) -> Table:
    """The same columns as differences from MLE of the same attention, over shared seeds."""
    cells, marks = {}, {}
    for column in table.columns:
        for row, d in against_mle(table.cells, column).items():
            cells[row, column] = Cell(d.mean, d.error, d.n)
            if d.significant:
                marks[row, column] = MARK
    return replace(make_table(cells, table.columns), marks=marks, signed=True)


def legend(table: Table) -> str:
    """Explanation of the marks of a table and the number of seeds; empty where nothing was tested."""
    differences = [d for column in table.columns for d in against_mle(table.cells, column).values()]
    tested = sorted({d.n for d in differences if d.p is not None})
    if not tested:
        return ""
    seeds = f"{tested[0]}" if len(tested) == 1 else f"{tested[0]} to {tested[-1]}"
    return (
        f"{MARK} differs from MLE with the same attention: paired t-test over the n = {seeds} shared seeds, "
        f"p < {LEVEL}, not corrected for the number of comparisons."
    )


@dataclass(frozen=True)
class Top:
    """Two rows of a column, the best and the next, and the first minus the second."""

    column: Column
    best: Key
    second: Key
    difference: Difference


def best_against_second(cells: Cells, columns: Iterable[Column]) -> list[Top]:
    """The two best of every column, where they share seeds; also of single models where these differ.

    An ensemble and a single model share no seeds.
    """
    tops = []
    for column in columns:
        order = ranked(cells, column)
        singles = [(row, cell) for row, cell in order if not is_ensemble(row[1])]
        for pair in [order[:2]] + ([singles[:2]] if singles[:2] != order[:2] else []):
            if len(pair) == 2:
                (best, a), (second, b) = pair
                if is_ensemble(best[1]) != is_ensemble(second[1]):
                    continue
                if (difference := paired_difference(a.by_seed, b.by_seed)) is not None:
                    tops.append(Top(column, best, second, difference))
    return tops
