"""All tests of a task: clean, shifted and out-of-distribution data."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sgpa.core.arguments import checked
from sgpa.core.errors import check_fields
from sgpa.core.types import Classification, Prediction, Predictor
from sgpa.data import Dataset
from sgpa.data.corruptions import NAMES, SEVERITIES, TYPES
from sgpa.evaluation.evaluate import Judge, evaluate
from sgpa.evaluation.results import OodSet, ResultCache, Results, Subject, no_cache
from sgpa.evaluation.robustness import evaluate_corruptions
from sgpa.experiments.tasks.base import Example, Task

OnTest = Callable[[str, int, int], None]  # what is being tested, how many tests are done, of how many


@checked
@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """How much is tested. `rows` and `ood_rows` limit tests to the first rows."""

    rows: int | None = None
    ood_rows: int | None = None
    corruptions: tuple[str, ...] = NAMES
    severities: tuple[int, ...] = SEVERITIES

    def __post_init__(self) -> None:
        for name in ("corruptions", "severities"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        check_fields(
            "evaluation",
            [
                ("rows", self.rows, self.rows is None or self.rows >= 1, "1 or more, or none"),
                (
                    "ood_rows",
                    self.ood_rows,
                    self.ood_rows is None or self.ood_rows >= 1,
                    "1 or more, or none",
                ),
                ("corruptions", self.corruptions, set(self.corruptions) <= set(TYPES), ", ".join(TYPES)),
                (
                    "severities",
                    self.severities,
                    set(self.severities) <= set(SEVERITIES),
                    "numbers from 1 to 5",
                ),
            ],
        )


def evaluate_task(
    predictor: Predictor,
    subject: Subject,
    task: Task,
    how: EvaluationConfig | None = None,
    on_progress: OnTest = lambda *_: None,
    cache: ResultCache = no_cache,
    judge: Judge | None = None,
    adjust: Callable[[Prediction], Prediction] = lambda prediction: prediction,
) -> Results:
    """All tests of a task; parts that `cache` holds are not measured again."""
    how = how or EvaluationConfig()
    test = task.splits.test[: how.rows]
    on_progress("clean data", 0, 1)

    def uncorrupted() -> Results:
        ood = {name: _first_inputs(make(), how.ood_rows) for name, make in task.ood.items()}
        shifts = {name: _first_rows(make, how.rows) for name, make in task.shifts.items()}
        return evaluate(
            predictor,
            subject,
            test,
            shifts=shifts,
            ood=ood,
            judge=judge,
            adjust=adjust,
            show=task.display,
            classes=task.class_names,
        )

    cached = cache("uncorrupted", uncorrupted)
    results = Results([*cached.records], [*cached.curves])
    if task.corrupted is not None and how.corruptions and how.severities:
        images = test.inputs
        assert isinstance(images, Tensor)
        corrupted = evaluate_corruptions(
            predictor,
            subject,
            images,
            test.targets,
            types=how.corruptions,
            severities=how.severities,
            corrupted_files=task.corrupted(),
            on_progress=on_progress,
            cache=cache,
        )
        results.records += corrupted.records
        results.curves += corrupted.curves
    if task.examples is not None and subject.seed == 0:
        results.add_curve(subject, "examples", "", answers(predictor, task.examples()))
    on_progress("done", 1, 1)
    return results


def answers(predictor: Predictor, examples: list[Example]) -> list[dict[str, Any]]:
    """Predictions of a classifier for single inputs."""
    prediction = predictor.predict(torch.cat([example.inputs for example in examples]))
    assert isinstance(prediction, Classification)
    return [
        {
            "caption": example.caption,
            "image": example.image,
            "probabilities": prediction.probabilities[i].tolist(),
            "entropy": float(prediction.entropy[i]),
            "mutual_information": float(prediction.mutual_information[i]),
        }
        for i, example in enumerate(examples)
    ]


def _first_rows(make: Callable[[], Dataset], rows: int | None) -> Callable[[], Dataset]:
    return lambda: make()[:rows]


def _first_inputs(ood: OodSet, rows: int | None) -> OodSet:
    if rows is None or rows >= len(ood.inputs):
        return ood
    reference_size = ood.reference_size or len(ood.inputs)
    return replace(ood, inputs=ood.inputs[:rows], reference_size=reference_size)
