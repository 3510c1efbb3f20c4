"""Over all tasks: which method is best where, and how often."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from sgpa.report.names import Key, Task, is_ensemble, key_order, labels, task_name
from sgpa.report.render import Grid
from sgpa.report.sections.findings import (
    Comparison,
    basis,
    compare,
    findings,
    settings,
    some,
    standing,
    verdict,
)
from sgpa.report.tables import Cells, aggregate
from sgpa.report.tables import tasks as tasks_of

ByTask = Mapping[Task, Cells]
FIRST = ("mcc", "accuracy", "mae", "auroc")  # the first of these that a setting has


def best_where(tasks: ByTask) -> Grid:
    """A line per task and setting: the best method, with those not clearly different from it."""
    names = _names(tasks)
    lines: list[tuple[str, ...]] = []
    for task, cells in tasks.items():
        own = []
        for title, _, columns in settings(cells):
            compared = {c.metric: compare(cells, c) for c in columns}
            held = {name: c for name, c in compared.items() if c is not None}
            if held:
                first = next((held[name] for name in FIRST if name in held), None)
                rest = [held.get(name) for name in ("nll", "ece")]
                own.append((title, *(_leaders(c, cells, names) for c in (first, *rest))))
        lines += [(task_name(task),), *own] if own and len(tasks) > 1 else own
    head = ("", "Accuracy, MCC, MAE or AUROC", "NLL", "ECE")
    kept = [i for i in range(len(head)) if not i or any(line[i] for line in lines if len(line) > 1)]
    rows = (tuple(line[i] for i in kept) if len(line) > 1 else line for line in lines)
    return Grid(tuple(head[i] for i in kept), tuple(rows))


def _names(tasks: ByTask) -> dict[Key, str]:
    return labels(key_order(row for cells in tasks.values() for row, _ in cells))


def _leaders(c: Comparison | None, cells: Cells, names: Mapping[Key, str]) -> str:
    """The best methods; where only ensembles are, also the best single models."""
    if c is None:
        return ""
    leaders = [c.best, *c.sharing]
    text = ("no clear difference: " if c.sharing else "") + some([names[row] for row in leaders])
    if all(is_ensemble(method) for _, method in leaders):
        singles = {row for row, column in cells if column == c.column and not is_ensemble(row[1])}
        if (best := compare(cells, c.column, singles)) is not None:
            text += f"\nsingle model: {some([names[row] for row in (best.best, *best.sharing)])}"
    return text


def overall(tasks: ByTask) -> str:
    """A paragraph: how often each method is clearly best, how often none is, and the counts of SGPA."""
    names = _names(tasks)
    measured = [(cells, c) for cells in tasks.values() for _, _, columns in settings(cells) for c in columns]
    comparisons = [c for c in (compare(cells, column) for cells, column in measured) if c is not None]
    if not comparisons:
        return ""
    wins = Counter(c.best for c in comparisons if not c.sharing)
    counts = [f"{names[row]} in {count}" for row, count in wins.most_common()]
    methods, attentions = ({key[i] for key in names} for i in (1, 0))
    kinds = f" with {len(attentions)} kinds of attention" if len(attentions) > 1 else ""
    sentences = [f"{len(methods)} methods{kinds}, {len(tasks)} tasks, {len(comparisons)} comparisons."]
    if counts:
        sentences.append(f"Clearly best: {', '.join(counts)}.")
    close = len(comparisons) - sum(wins.values())
    sentences.append(f"No clear best method: {close}.")
    sentences += [
        standing(list(tasks.values())),
        basis(cell for cells in tasks.values() for cell in cells.values()),
    ]
    return " ".join(filter(None, sentences))


def opening(results: Mapping[str, Any]) -> str:
    """The paragraph that the page of saved results begins with."""
    tasks = {task: aggregate(results["records"], task) for task in tasks_of(results["records"])}
    if len(tasks) > 1:
        return overall(tasks)
    return "".join(verdict(findings(cells), cells) for cells in tasks.values())
