"""Simple baselines of a run: `baselines.json` in the run folder, beside the cells."""

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from sgpa.core.config import to_plain
from sgpa.core.files import read_json, write_json
from sgpa.core.inputs import Inputs
from sgpa.core.types import Prediction, Predictor
from sgpa.evaluation.baselines import LogisticRegression, baselines
from sgpa.evaluation.cases import row_scores
from sgpa.evaluation.evaluate import evaluate
from sgpa.evaluation.results import Results, Subject
from sgpa.evaluation.simple_features import feature_name
from sgpa.experiments.recipes import Recipe
from sgpa.experiments.runner.run_folder import RunFolder
from sgpa.experiments.tasks import Task, evaluate_task

FILE = "baselines.json"
MEASURED = ("accuracy", "nll", "mae", "rmse")  # of a constant answer


class SavedBaselines(TypedDict):
    """`baselines.json`."""

    about: NotRequired[dict[str, Any]]
    records: NotRequired[list[dict[str, Any]]]
    curves: NotRequired[list[dict[str, Any]]]
    timings: NotRequired[list[dict[str, Any]]]


class _Known(Predictor):
    """A predictor whose answers to the test rows are known."""

    def __init__(self, prediction: Prediction) -> None:
        self.prediction = prediction

    def predict(self, inputs: Inputs) -> Prediction:
        assert len(inputs) == len(self.prediction.score)
        return self.prediction


def evaluate_baselines(run_folder: RunFolder, seeds: Sequence[int]) -> None:
    """Train and test the baselines on the rows of a run, once, and write `baselines.json`.

    On a user's data their answers to single rows are kept, as those of the model. On a public data set it is
    logistic regression, with all tests of the task.
    """
    task, file = run_folder.task(seeds[0]), run_folder.directory / FILE
    recipe = run_folder.recipe
    about = {
        "data": task.fingerprint,
        "seeds": list(seeds),
        "split": getattr(recipe.task, "split", ""),
        "evaluation": to_plain(recipe.evaluation),
    }
    if file.exists() and read_json(file, SavedBaselines).get("about") == about:
        return
    measured = _all_tests(recipe, task, seeds) if task.display is None else _rows(recipe, task, seeds[0])
    write_json(file, {"about": about, **measured})


def _rows(recipe: Recipe, task: Task, seed: int) -> dict[str, Any]:
    """Both baselines on the test rows, with the scores of single rows."""
    results, timings = Results(), []
    test = task.splits.test[: recipe.evaluation.rows]
    for one in baselines(task.splits):
        constant = one.id in ("majority", "mean")
        method = one.id if constant else f"{one.id}:{feature_name(task.splits.train.inputs)}"
        subject = Subject(recipe.task.dataset, "", method, seed)
        prediction = _first(one.prediction, len(test))
        records = evaluate(_Known(prediction), subject, test).records
        results.records += [r for r in records if not constant or r["metric"] in MEASURED]
        results.add_curve(subject, "rows", "", row_scores(prediction, test.targets))
        timings.append(asdict(subject) | {"train_seconds": one.seconds})
    return {"records": results.records, "curves": results.curves, "timings": timings}


def _all_tests(recipe: Recipe, task: Task, seeds: Sequence[int]) -> dict[str, Any]:
    """Logistic regression in all tests of a task; nothing in it is random, so every seed has its numbers."""
    method = f"logistic:{feature_name(task.splits.train.inputs)}"
    subject = Subject(recipe.task.dataset, "", method, seeds[0], recipe.task.augmentation)
    started = time.perf_counter()
    model = LogisticRegression.fit(task.splits)
    seconds = time.perf_counter() - started
    results = evaluate_task(model, subject, replace(task, examples=None), recipe.evaluation)
    records = [record | {"seed": seed} for seed in seeds for record in results.records]
    timings = [asdict(subject) | {"train_seconds": seconds}]
    return {"records": records, "curves": results.curves, "timings": timings}


def read_baselines(directory: Path | None) -> dict[str, Any]:
    """Records, curves and timings of the baselines of a run folder; empty lists where there are none."""
    file = None if directory is None else directory / FILE
    saved = {} if file is None or not file.exists() else read_json(file, SavedBaselines)
    return {name: saved.get(name, []) for name in ("records", "curves", "timings")}


def _first(prediction: Any, rows: int) -> Prediction:
    """The answers to the first rows."""
    if hasattr(prediction, "probabilities"):
        kind = type(prediction)
        return kind(prediction.probabilities[:rows], prediction.expected_entropy[:rows])
    return type(prediction)(prediction.samples[:, :rows], prediction.scale)
