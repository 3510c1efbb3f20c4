"""The published numbers, for comparison with ours where the same quantity was measured."""

import csv
from functools import lru_cache
from importlib.resources import files

from sgpa.report.names import CLEAN, Task, is_ensemble, split_shift, task_of
from sgpa.report.tables import CellKey, Cells, Column, Published

# Our name of a shift -> the published shift it is compared with. Regenerated corruptions have the types and
# intensities of the official files, and are made from the clean test set with other random numbers.
STANDS_FOR = {
    "cifar10-c-regenerated": "cifar10-c",
    "cifar100-c-regenerated": "cifar100-c",
    "mini_imagenet": "miniimagenet",
}
# Our metric -> the printed metric that measures the same quantity under another name. AUPR depends on the
# share of OOD inputs: where we test on fewer than the paper, the value reweighted to its share is compared.
# The printed MCE is computed over all classes: an earlier version of the paper prints the same MCE beside an
# ECE that only this definition gives.
TWINS = {"aupr_paper_share": "aupr", "mce_all_classes": "mce"}
# Printed values that cannot be correct: RMSE and NLL of one row are the same number with the same error; a
# row with temperature scaling repeats the one without. They are shown with a question mark.
DOUBTFUL = {
    *(("zinc", "mle", name) for name in ("rmse", "nll")),
    *(("imdb", "ts", name) for name in ("nll", "ece", "mce")),
}

# The forms of SGPA that the paper compares, as variants: `sgpa report RUN RUN RUN --names standard,...`
FORMS = {
    "standard-sgpa": "sgpa:standard",
    "decoupled-sgpa-cheng-boots": "sgpa:Cheng-Boots",
    "decoupled-sgpa-salimbeni": "sgpa:orthogonal",
}

Measured = tuple[Task, str, str, str, str, str]  # task, evaluation, shift, attention, method, metric


@lru_cache(maxsize=1)
def published() -> dict[Measured, Published]:
    """All printed values by what they measure, without the ± of ensembles, which is printed as 0."""
    text = (files("sgpa") / "report" / "paper_results.csv").read_text(encoding="utf-8")
    values = {}
    for row in csv.DictReader(text.splitlines()):
        bare = not row["error"] or is_ensemble(row["method"])
        doubt = (row["dataset"], row["method"], row["metric"]) in DOUBTFUL
        cell = Published(float(row["mean"]), None if bare else float(row["error"]), n=0, doubtful=doubt)
        task = task_of(row["dataset"], row["augmentation"])
        key = (task, row["evaluation"], row["shift"], row["attention"], row["method"], row["metric"])
        if row["method"] in FORMS:
            key = (task, CLEAN, "", "kernel", FORMS[row["method"]], row["metric"])
        values[key] = cell
    return values


def paper_shift(shift: str) -> str:
    """The published shift that ours is compared with: 'cifar10-c-regenerated:3' -> 'cifar10-c:3'."""
    family, strength = split_shift(shift)
    family = STANDS_FOR.get(family, family)
    return family if strength is None else f"{family}:{strength}"


def published_cells(cells: Cells, task: Task) -> dict[CellKey, Published]:
    """The published value of every cell that has one."""
    columns = {column for _, column in cells}
    values = {}
    for (attention, method), column in cells:
        twins = (twin for twin, name in TWINS.items() if name == column.metric)
        if any(Column(column.evaluation, column.shift, twin) in columns for twin in twins):
            continue  # the printed value belongs to the other metric
        name = TWINS.get(column.metric, column.metric)
        key = (task, column.evaluation, paper_shift(column.shift), attention, method, name)
        if key in published():
            values[(attention, method), column] = published()[key]
    return values
