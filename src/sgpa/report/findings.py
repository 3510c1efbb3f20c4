"""What a run shows, in plain words, computed from its numbers and nothing else.

A difference counts as clear when it exceeds two standard errors of the difference, 2 sqrt(e1^2 + e2^2).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from sgpa.report.names import Key, key_order, labels, metric, shift_name, split_shift
from sgpa.report.tables import Cell, Cells, Column

CLEAN = "in-distribution"
ROBUSTNESS = "robustness"
DETECTION = "ood-detection"
COMPARED = ("nll", "ece", "accuracy", "mcc", "mae")


@dataclass(frozen=True)
class Comparison:
    """The best row of a column against SGPA, or against the runner-up where SGPA itself is best or absent."""

    column: Column
    best: Key
    other: Key
    best_cell: Cell
    other_cell: Cell
    rivals: int  # how many rows were compared

    @property
    def tied(self) -> bool:
        """Both print the same value."""
        text = metric(self.column.metric).text
        return text(self.best_cell.mean) == text(self.other_cell.mean)

    @property
    def clear(self) -> bool | None:
        """Whether the gap exceeds two standard errors; None where a row has one seed only."""
        a, b = self.best_cell, self.other_cell
        if a.error is None or b.error is None:
            return None
        return abs(a.mean - b.mean) > 2 * math.hypot(a.error, b.error)

    @property
    def level(self) -> bool:
        """No winner can be named."""
        return self.tied or self.clear is False


@dataclass(frozen=True)
class Finding:
    """One setting and what the numbers say about it: in short without numbers, and line by line with them."""

    title: str
    short: str
    lines: tuple[str, ...]
    comparisons: tuple[Comparison, ...]


def strongest(cells: Cells) -> list[str]:
    """The strongest shift of every robustness family; a shift without strengths stands for itself."""
    top: dict[str, tuple[int, str]] = {}
    for _, column in cells:
        if column.evaluation == ROBUSTNESS:
            family, strength = split_shift(column.shift)
            top[family] = max(top.get(family, (-1, "")), (strength or 0, column.shift))
    return [shift for _, shift in top.values()]


def compare(cells: Cells, column: Column) -> Comparison | None:
    """The comparison a column supports, or None with fewer than two rows."""
    higher = metric(column.metric).higher_is_better
    rows = key_order(row for row, c in cells if c == column)
    if len(rows) < 2 or higher is None:
        return None
    ranked = sorted(rows, key=lambda row: cells[row, column].mean, reverse=higher)
    ours = [row for row in ranked if row[1] == "sgpa"]
    other = ours[0] if ours and ours[0] != ranked[0] else ranked[1]
    return Comparison(column, ranked[0], other, cells[ranked[0], column], cells[other, column], len(rows))


def findings(cells: Cells) -> list[Finding]:
    """Clean test set, strongest shift of each family, OOD detection: those that were measured."""
    settings = [("Clean test set", "On the clean test set", [Column(CLEAN, "", m) for m in COMPARED])]
    for shift in strongest(cells):
        name = shift_name(shift)
        columns = [Column(ROBUSTNESS, shift, m) for m in COMPARED]
        settings.append((f"Strongest shift: {name}", f"Under {name}", columns))
    for shift in dict.fromkeys(c.shift for _, c in cells if c.evaluation == DETECTION):
        name = shift_name(shift)
        columns = [Column(DETECTION, shift, "auroc")]
        settings.append((f"Unfamiliar inputs: {name}", f"In telling {name} from test inputs", columns))
    names = labels(key_order(row for row, _ in cells))
    found = []
    for title, opening, columns in settings:
        comparisons = tuple(c for c in (compare(cells, column) for column in columns) if c is not None)
        if comparisons:
            lines = tuple(_line(c, names) for c in comparisons)
            found.append(Finding(title, f"{opening}, {_short(comparisons, names)}.", lines, comparisons))
    return found


def _name(c: Comparison) -> str:
    """The metric inside a sentence: abbreviations keep their capitals."""
    name = metric(c.column.metric).name
    return name if name.isupper() else name.lower()


def _line(c: Comparison, names: dict[Key, str]) -> str:
    shape, name = metric(c.column.metric), _name(c)
    best, other = shape.spoken(c.best_cell.mean), shape.spoken(c.other_cell.mean)
    if c.tied:
        return f"{names[c.best]} and {names[c.other]} are level in {name}: {best}."
    if c.clear is False:
        return f"Too close to call in {name}: {best} for {names[c.best]}, {other} for {names[c.other]}."
    word = ("higher" if shape.higher_is_better else "lower") if c.rivals == 2 else "best"
    return f"{names[c.best]} has the {word} {name}: {best} against {other} for {names[c.other]}."


def _short(comparisons: Iterable[Comparison], names: dict[Key, str]) -> str:
    wins: dict[str, list[str]] = {}
    close = []
    for c in comparisons:
        if c.level:
            close.append(_name(c))
        else:
            better = "better" if c.rivals == 2 else "best"
            wins.setdefault(f"{names[c.best]} is {better} in", []).append(_name(c))
    clauses = [f"{who} {_listed(what)}" for who, what in wins.items()]
    if close:
        clauses.append(f"{_listed(close)} {'is' if len(close) == 1 else 'are'} too close to call")
    return "; ".join(clauses)


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def verdict(found: Iterable[Finding], cells: Cells) -> str:
    """A paragraph: how often SGPA is ahead or behind, who is better where, and on how many seeds."""
    found = list(found)
    ours = [c for f in found for c in f.comparisons if "sgpa" in (c.best[1], c.other[1])]
    sentences = []
    if ours:
        level = sum(c.level for c in ours)
        ahead = sum(not c.level and c.best[1] == "sgpa" for c in ours)
        others = {row for row, _ in cells if row[1] != "sgpa"}
        rival = labels(others)[others.pop()] if len(others) == 1 else "the best other method"
        plural = "s" if len(ours) > 1 else ""
        sentences.append(
            f"In {len(ours)} comparison{plural} with {rival}, SGPA is better in {ahead}, "
            f"worse in {len(ours) - level - ahead} and too close to call in {level}."
        )
    sentences += [f.short for f in found]
    seeds = sorted({cell.n for cell in cells.values()})
    if seeds == [1]:
        sentences.append("Every number comes from one seed, so differences carry no error bar.")
    elif seeds:
        span = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]}"
        sentences.append(
            f"Numbers are means over {span} seeds; too close to call means within two standard errors."
        )
    return " ".join(sentences)
