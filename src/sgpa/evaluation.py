"""From a predictor and test sets to tidy records, and the curves a report draws."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from sgpa import metrics
from sgpa.data import Dataset
from sgpa.methods import Predictor
from sgpa.types import Classification

ENTROPY_BINS = 24


@dataclass(frozen=True)
class Subject:
    """Whose numbers these are: the columns every record and curve of a run shares."""

    dataset: str
    attention: str  # sdp or kernel
    method: str
    seed: int
    augmentation: str = ""


@dataclass
class Results:
    """Records (one number each) and curves, in the order they were measured."""

    records: list[dict[str, Any]] = field(default_factory=list)
    curves: list[dict[str, Any]] = field(default_factory=list)

    def add(self, subject: Subject, evaluation: str, shift: str, values: dict[str, float]) -> None:
        """One record per metric."""
        about = asdict(subject) | {"evaluation": evaluation, "shift": shift}
        self.records += [about | {"metric": name, "value": value} for name, value in values.items()]

    def draw(self, subject: Subject, kind: str, shift: str, data: Any) -> None:
        """One curve."""
        self.curves.append(asdict(subject) | {"kind": kind, "shift": shift, "data": data})


def evaluate_classifier(
    predictor: Predictor,
    subject: Subject,
    test: Dataset,
    *,
    shifts: dict[str, Callable[[], Dataset]],
    outside: dict[str, Tensor],
) -> Results:
    """In-distribution test, robustness under each shift, and detection of each set from outside.

    `shifts` are made one at a time, when their turn comes: they can be large.
    """
    results = Results()
    clean = _classify(predictor, test)
    _measure(results, subject, "in-distribution", "", clean, test)
    for name, make in shifts.items():
        shifted = make()
        _measure(results, subject, "robustness", name, _classify(predictor, shifted), shifted)
    inside = clean.score.cpu().numpy()
    results.draw(subject, "entropy", "", _histogram(clean))
    for name, inputs in outside.items():
        found = predictor.predict(inputs)
        assert isinstance(found, Classification)
        scores = np.concatenate([inside, found.score.cpu().numpy()])
        is_out = np.concatenate([np.zeros(len(inside)), np.ones(len(inputs))]).astype(int)
        values = {"auroc": metrics.auroc(scores, is_out), "aupr": metrics.aupr(scores, is_out)}
        results.add(subject, "ood-detection", name, values)
        results.draw(subject, "entropy", name, _histogram(found))
    return results


def _classify(predictor: Predictor, data: Dataset) -> Classification:
    prediction = predictor.predict(data.inputs)
    assert isinstance(prediction, Classification)
    return prediction


def _measure(
    results: Results, subject: Subject, evaluation: str, shift: str, found: Classification, data: Dataset
) -> None:
    p, y = found.probabilities.cpu().double().numpy(), data.targets.cpu().numpy()
    bins = metrics.reliability(p, y)
    values = {
        "accuracy": metrics.accuracy(p, y),
        "nll": metrics.nll(p, y),
        "ece": metrics.ece(p, y),
        "mce": metrics.mce(p, y),
        "brier": metrics.brier(p, y),
    }
    results.add(subject, evaluation, shift, values)
    data_ = {name: getattr(bins, name).tolist() for name in ("edges", "confidence", "accuracy", "count")}
    results.draw(subject, "reliability", shift, data_)


def _histogram(found: Classification) -> dict[str, list[float]]:
    top = float(np.log(found.probabilities.shape[-1]))
    count, edges = np.histogram(found.entropy.cpu().numpy(), bins=ENTROPY_BINS, range=(0.0, top + 1e-6))
    return {"edges": edges.tolist(), "count": count.tolist()}
