"""Simple baselines of a run on a user's data: `baselines.json` in the run folder, beside the cells."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from sgpa.core.files import read_json, write_json
from sgpa.core.inputs import Inputs
from sgpa.core.types import Prediction
from sgpa.evaluation.baselines import baselines
from sgpa.evaluation.cases import row_scores
from sgpa.evaluation.evaluate import evaluate
from sgpa.evaluation.results import Results, Subject
from sgpa.evaluation.simple_features import feature_name
from sgpa.experiments.runner.run_folder import RunFolder

FILE = "baselines.json"
MEASURED = ("accuracy", "nll", "mae", "rmse")  # of a constant answer


class SavedBaselines(TypedDict):
    """`baselines.json`."""

    about: NotRequired[dict[str, Any]]
    records: NotRequired[list[dict[str, Any]]]
    curves: NotRequired[list[dict[str, Any]]]
    timings: NotRequired[list[dict[str, Any]]]


class _Known:
    """A predictor whose answers to the test rows are known."""

    def __init__(self, prediction: Prediction) -> None:
        self.prediction = prediction

    def predict(self, inputs: Inputs) -> Prediction:
        assert len(inputs) == len(self.prediction.score)
        return self.prediction

    def with_samples(self, samples: int) -> "_Known":
        del samples
        return self


def evaluate_baselines(run_folder: RunFolder, seed: int) -> None:
    """Train and test the baselines on the rows of a run, once, and write `baselines.json`.

    Only for data whose rows are judged one by one, which are those of a user.
    """
    task, file = run_folder.task(seed), run_folder.directory / FILE
    if task.display is None:
        return
    about = {"data": task.fingerprint, "seed": seed, "split": getattr(run_folder.recipe.task, "split", "")}
    if file.exists() and read_json(file, SavedBaselines).get("about") == about:
        return
    results, timings = Results(), []
    test = task.splits.test[: run_folder.recipe.evaluation.rows]
    for one in baselines(task.splits):
        constant = one.id in ("majority", "mean")
        method = one.id if constant else f"{one.id}:{feature_name(task.splits.train.inputs)}"
        subject = Subject(run_folder.recipe.task.dataset, "", method, seed)
        prediction = _first(one.prediction, len(test))
        records = evaluate(_Known(prediction), subject, test).records
        results.records += [r for r in records if not constant or r["metric"] in MEASURED]
        results.add_curve(subject, "rows", "", row_scores(prediction, test.targets))
        timings.append(asdict(subject) | {"train_seconds": one.seconds})
    write_json(
        file, {"about": about, "records": results.records, "curves": results.curves, "timings": timings}
    )


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
