"""Everything a task tests: clean data, shifted data, foreign data."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sgpa.core.errors import check_fields
from sgpa.core.types import Classification, Predictor
from sgpa.data import Dataset
from sgpa.data.corruptions import NAMES, SEVERITIES, TYPES
from sgpa.evaluation.evaluate import evaluate
from sgpa.evaluation.results import OodSet, ResultCache, Results, Subject, no_cache
from sgpa.evaluation.robustness import evaluate_corruptions
from sgpa.experiments.tasks.base import Example, Task

Tell = Callable[[str, int, int], None]  # what is being tested, how many tests are done, of how many


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """How much is tested. `rows` and `ood_rows` take the first rows only, for a quick look."""

    rows: int | None = None
    ood_rows: int | None = None
    corruptions: tuple[str, ...] = NAMES
    severities: tuple[int, ...] = SEVERITIES

    def __post_init__(self) -> None:
        for name in ("corruptions", "severities"):  # JSON knows lists only
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


def examine(
    predictor: Predictor,
    subject: Subject,
    task: Task,
    how: EvaluationConfig | None = None,
    tell: Tell = lambda *_: None,
    keep: ResultCache = no_cache,
) -> Results:
    """In-distribution, robustness and detection, as the paper has them; `keep` may know parts of it."""
    how = how or EvaluationConfig()
    test = task.splits.test[: how.rows]
    tell("clean data", 0, 1)

    def uncorrupted() -> Results:
        foreign = {name: _some(make(), how.ood_rows) for name, make in task.outside.items()}
        shifts = {name: _first(make, how.rows) for name, make in task.shifts.items()}
        return evaluate(predictor, subject, test, shifts=shifts, ood=foreign)

    kept = keep("uncorrupted", uncorrupted)
    results = Results([*kept.records], [*kept.curves])
    if task.corrupted is not None and how.corruptions and how.severities:
        images = test.inputs
        assert isinstance(images, Tensor)
        found = evaluate_corruptions(
            predictor,
            subject,
            images,
            test.targets,
            types=how.corruptions,
            severities=how.severities,
            ready_made=task.corrupted(),
            on_progress=tell,
            cache=keep,
        )
        results.records += found.records
        results.curves += found.curves
    if task.examples is not None and subject.seed == 0:
        results.add_curve(subject, "examples", "", answers(predictor, task.examples()))
    tell("done", 1, 1)
    return results


def answers(predictor: Predictor, examples: list[Example]) -> list[dict[str, Any]]:
    """What a classifier says about single inputs."""
    found = predictor.predict(torch.cat([example.inputs for example in examples]))
    assert isinstance(found, Classification)
    return [
        {
            "caption": example.caption,
            "image": example.image,
            "probabilities": found.probabilities[i].tolist(),
            "entropy": float(found.entropy[i]),
            "mutual_information": float(found.mutual_information[i]),
        }
        for i, example in enumerate(examples)
    ]


def _first(make: Callable[[], Dataset], rows: int | None) -> Callable[[], Dataset]:
    return lambda: make()[:rows]


def _some(foreign: OodSet, rows: int | None) -> OodSet:
    if rows is None or rows >= len(foreign.inputs):
        return foreign
    reference_size = foreign.reference_size or len(foreign.inputs)
    return replace(foreign, inputs=foreign.inputs[:rows], reference_size=reference_size)
