"""Findings of a run as sentences, computed from its numbers.

A difference is clear when it exceeds two standard errors of the difference, 2 sqrt(e1^2 + e2^2). A row of
one seed is given the mean standard error of the rows it is compared with.
"""

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from sgpa.report.names import (
    CLEAN,
    DETECTION,
    ROBUSTNESS,
    TRUST,
    Key,
    corruption_type,
    is_baseline,
    is_ensemble,
    key_order,
    labels,
    listed,
    metric,
    sentence_case,
    shift_name,
    split_shift,
)
from sgpa.report.tables import Cell, Cells, Column, ranked

COMPARED = ("nll", "ece", "accuracy", "mcc", "mae")
LEVEL = "there is no clear difference in"
MOST_NAMED = 3  # rows that a sentence names one by one
MOST_EXCEPTIONS = 6  # places that a sentence names one by one


@dataclass(frozen=True)
class Comparison:
    """The best row of a column against SGPA, or against the runner-up where SGPA itself is best or absent."""

    column: Column
    best: Key
    other: Key
    best_cell: Cell
    other_cell: Cell
    sharing: tuple[Key, ...]  # rows not clearly different from the best, in order of rank
    rivals: int  # how many rows were compared

    @property
    def level(self) -> bool:
        """Whether the two are not clearly different."""
        return self.other in self.sharing

    @property
    def tied(self) -> bool:
        """Whether both print the same value."""
        return _tied(self.best_cell, self.other_cell, self.column)


def _tied(a: Cell, b: Cell, column: Column) -> bool:
    text = metric(column.metric).text
    return text(a.mean) == text(b.mean)


def _sharing(order: Sequence[tuple[Key, Cell]], column: Column) -> tuple[Key, ...]:
    """Rows that print the value of the first one or, where errors are known, lie within two of them."""
    known = [cell.error for _, cell in order if cell.error is not None]
    typical = math.fsum(known) / len(known) if known else 0.0
    (_, best), *rest = order

    def two_errors(cell: Cell) -> float:
        errors = (typical if e is None else e for e in (best.error, cell.error))
        return 2 * math.hypot(*errors)

    return tuple(
        row
        for row, cell in rest
        if _tied(best, cell, column) or (known and abs(best.mean - cell.mean) <= two_errors(cell))
    )


@dataclass(frozen=True)
class Finding:
    """One setting with its findings: `short` without numbers, `lines` with numbers, one per metric."""

    title: str
    short: str
    lines: tuple[str, ...]
    comparisons: tuple[Comparison, ...]


def strongest(cells: Cells) -> list[str]:
    """The strongest shift of every robustness family; a shift without strengths is returned as it is.

    Single corruption types are left out, the mean over them is used.
    """
    top: dict[str, tuple[int, str]] = {}
    for _, column in cells:
        if column.evaluation == ROBUSTNESS and not corruption_type(column.shift):
            family, strength = split_shift(column.shift)
            top[family] = max(top.get(family, (-1, "")), (strength or 0, column.shift))
    return [shift for _, shift in top.values()]


def compare(cells: Cells, column: Column, among: Set[Key] | None = None) -> Comparison | None:
    """The comparison of a column (between the rows `among`), or None with fewer than two rows."""
    order = [row for row in ranked(cells, column) if among is None or row[0] in among]
    if len(order) < 2:
        return None
    best, best_cell = order[0]
    ours = [row for row, _ in order if row[1] == "sgpa"]
    other = ours[0] if ours and ours[0] != best else order[1][0]
    return Comparison(
        column, best, other, best_cell, cells[other, column], _sharing(order, column), len(order)
    )


def settings(cells: Cells) -> list[tuple[str, str, list[Column]]]:
    """Title, first words of a sentence, and columns of every setting that was measured."""
    measured = [("Clean test set", "On the clean test set", [Column(CLEAN, "", m) for m in COMPARED])]
    for shift in strongest(cells):
        name = shift_name(shift)
        columns = [Column(ROBUSTNESS, shift, m) for m in COMPARED]
        title = "Strongest shift" if split_shift(shift)[1] is not None else "Shift"
        measured.append((f"{title}: {name}", f"Under {name}", columns))
    for shift in dict.fromkeys(c.shift for _, c in cells if c.evaluation == DETECTION):
        name = shift_name(shift)
        columns = [Column(DETECTION, shift, "auroc"), Column(TRUST, shift, "novelty_auroc")]
        measured.append((f"OOD detection: {name}", f"In detecting {name}", columns))
    return measured


def findings(cells: Cells) -> list[Finding]:
    """Clean test set, strongest shift of each family, OOD detection: those that were measured.

    The methods are compared with each other, then SGPA with every simple baseline.
    """
    names = _spoken_names(cells)
    made = []
    for title, opening, columns in settings(cells):
        parts = [part for rows in _rivals(cells) if (part := _comparisons(cells, columns, rows))]
        if parts:
            comparisons = tuple(c for part in parts for c in part)
            lines = tuple(_line(c, names) for c in comparisons)
            short = [_against(part, names) if len(parts) > 1 else _short(part, names) for part in parts]
            text = f"{opening}, {short[0]}." + "".join(f" {sentence_case(one)}." for one in short[1:])
            made.append(Finding(title, text, lines, comparisons))
    return made


def _spoken_names(cells: Cells) -> dict[Key, str]:
    """Names inside a sentence: those of baselines are no abbreviations and start in lower case."""
    names = labels(key_order(row for row, _ in cells))
    return {row: name[0].lower() + name[1:] if is_baseline(row[1]) else name for row, name in names.items()}


def _rivals(cells: Cells) -> list[Set[Key]]:
    """Rows that are compared with each other: all methods; SGPA and each simple baseline."""
    rows = key_order(row for row, _ in cells)
    ours = [row for row in rows if row[1] == "sgpa"][:1]
    baselines = [row for row in rows if is_baseline(row[1])] if ours else []
    return [{row for row in rows if row not in baselines}, *({*ours, row} for row in baselines)]


def _against(comparisons: Sequence[Comparison], names: Mapping[Key, str]) -> str:
    """The findings against the only rival of SGPA, or among several methods."""
    c = comparisons[0]
    if c.rivals > 2:
        return f"among the methods, {_short(comparisons, names)}"
    rival = c.other if c.best[1] == "sgpa" else c.best
    words = {row: "SGPA is worse in" if row == rival else "SGPA is better in" for row in (c.best, c.other)}
    return f"against {names[rival]}, {_clauses(comparisons, words)}"


def _comparisons(cells: Cells, columns: Iterable[Column], among: Set[Key]) -> list[Comparison]:
    return [c for c in (compare(cells, column, among) for column in columns) if c is not None]


def metric_words(identifier: str) -> str:
    """A metric inside a sentence: abbreviations keep their capitals."""
    return " ".join(word if word.isupper() else word.lower() for word in metric(identifier).name.split())


def some(names: Sequence[str]) -> str:
    """All names, or the first of them and how many more there are."""
    return listed(names if len(names) <= MOST_NAMED else [*names[:2], f"{len(names) - 2} more"])


def _line(c: Comparison, names: dict[Key, str]) -> str:
    shape, name = metric(c.column.metric), metric_words(c.column.metric)
    best, other = (shape.spoken(cell.mean, cell.error) for cell in (c.best_cell, c.other_cell))
    first = sentence_case(names[c.best])
    if c.rivals == 2 and c.tied:
        return f"{first} and {names[c.other]} have the same {name}: {best}."
    if c.rivals == 2 and c.level:
        return f"No clear difference in {name}: {best} for {names[c.best]}, {other} for {names[c.other]}."
    if c.sharing:
        who = some([names[row] for row in (c.best, *c.sharing)])
        against = "" if c.level else f" against {other} for {names[c.other]}"
        return f"No clear difference in {name} between {who}: the best is {best}{against}."
    word = ("higher" if shape.higher_is_better else "lower") if c.rivals == 2 else "best"
    return f"{first} has the {word} {name}: {best} against {other} for {names[c.other]}."


def _short(comparisons: Sequence[Comparison], names: Mapping[Key, str]) -> str:
    better = "better" if comparisons[0].rivals == 2 else "best"
    return _clauses(comparisons, {row: f"{name} is {better} in" for row, name in names.items()})


def _clauses(comparisons: Iterable[Comparison], words: Mapping[Key, str]) -> str:
    """The metrics after the words of the row that is best in them, then those without a clear best row."""
    wins: dict[str, list[str]] = {}
    for c in comparisons:
        wins.setdefault(LEVEL if c.sharing else words[c.best], []).append(metric_words(c.column.metric))
    order = sorted(wins, key=lambda who: who == LEVEL)
    return "; ".join(f"{who} {listed(wins[who])}" for who in order)


def standing(tasks: Sequence[Cells]) -> str:
    """How often SGPA is better or worse than the best other method; empty where SGPA was not run.

    With ensembles, which cost several times as much, a second sentence counts without them. Each simple
    baseline has a sentence of its own.
    """
    names = {row: name for cells in tasks for row, name in _spoken_names(cells).items()}
    rows = {row for row in names if not is_baseline(row[1])}
    others = [row for row in rows if row[1] != "sgpa"]
    rival = names[others[0]] if len(others) == 1 else "the best other method"
    sentences = [_tally(tasks, rows, rival)]
    singles = {row for row in rows if not is_ensemble(row[1])}
    if len(singles) < len(rows):
        sentences.append(_tally(tasks, singles, "the best other single model"))
    for row in (row for row in names if is_baseline(row[1])):
        ours = {key for key in rows if key[1] == "sgpa"}
        sentences.append(_tally(tasks, {*ours, row}, names[row]))
    return " ".join(filter(None, sentences))


def _tally(tasks: Sequence[Cells], among: Set[Key], rival: str) -> str:
    measured = [(cells, c) for cells in tasks for _, _, columns in settings(cells) for c in columns]
    comparisons = [compare(cells, column, among) for cells, column in measured]
    ours = [c for c in comparisons if c is not None and "sgpa" in (c.best[1], c.other[1])]
    if not ours:
        return ""
    level = sum(c.level for c in ours)
    ahead = sum(not c.level and c.best[1] == "sgpa" for c in ours)
    count = f"{len(ours)} comparison{'s' if len(ours) > 1 else ''}"
    if not any(_has_errors(cells, among) for cells in tasks):
        return (
            f"Against {rival} SGPA has the better value in {ahead} of {count}; one seed cannot show which "
            "differences are due to chance."
        )
    return (
        f"Against {rival} SGPA is better in {ahead} of {count}, "
        f"worse in {len(ours) - level - ahead} and not clearly different in {level}."
    )


def _has_errors(cells: Cells, among: Set[Key]) -> bool:
    """Whether the error of any of these rows is known; one seed has none."""
    return any(cell.error is not None for (row, _), cell in cells.items() if row in among)


def basis(cells: Iterable[Cell]) -> str:
    """How many seeds were averaged."""
    seeds = sorted({cell.n for cell in cells})
    if seeds == [1]:
        return "All numbers come from one seed: they have no error bars."
    span = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]}"
    single = "; a single run is given the mean error of the others" if seeds[0] == 1 else ""
    return f"Numbers are means over {span} seeds; a clear difference exceeds two standard errors{single}."


def verdict(shown: Sequence[Finding], cells: Cells) -> str:
    """A paragraph: how often SGPA is better, where not, and the seeds; without SGPA, who is best where."""
    counts = standing([cells])
    where = exceptions(cells) if counts else [f.short for f in shown]
    return " ".join(filter(None, (counts, *where, basis(cells.values()))))


def exceptions(cells: Cells) -> list[str]:
    """Sentences for every rival of SGPA: where SGPA is worse, and where there is no clear difference."""
    names, sentences = _spoken_names(cells), []
    for rows in _rivals(cells):
        others = [row for row in rows if row[1] != "sgpa"]
        rival = names[others[0]] if len(others) == 1 else "the best other method"
        worse, level = _places(cells, rows, level=False), _places(cells, rows, level=True)
        bare = not _has_errors(cells, rows)
        behind, alike = (
            ("A worse value", "The same value as") if bare else ("Worse", "Not clearly different from")
        )
        if len(worse) + len(level) <= MOST_EXCEPTIONS:
            sentences += [f"{behind} than {rival}: {', '.join(worse)}."] if worse else []
            sentences += [f"{alike} {rival}: {', '.join(level)}."] if level else []
    return sentences


def _places(cells: Cells, rows: Set[Key], *, level: bool) -> list[str]:
    """Metrics and where they were measured: those without a clear best row, or those where SGPA is worse."""
    places = []
    for _, opening, columns in settings(cells):
        comparisons = [c for c in _comparisons(cells, columns, rows) if level or c.best[1] != "sgpa"]
        metrics = [metric_words(c.column.metric) for c in comparisons if c.level == level]
        places += [f"{listed(metrics)} {opening[0].lower()}{opening[1:]}"] if metrics else []
    return places
