"""From a predictor and test sets to tidy records, and the curves a report draws."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from sgpa.core.inputs import Inputs
from sgpa.core.types import Classification, Prediction, Predictor, Regression
from sgpa.data import Dataset
from sgpa.evaluation import metrics

ENTROPY_BINS = 24
RISK_POINTS = 101


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


@dataclass(frozen=True)
class Outside:
    """Inputs that do not come from the training distribution.

    `reference_size` is the size of the set they were drawn from: AUPR depends on the share of unfamiliar
    inputs, so it is also given as if there were that many.
    """

    inputs: Inputs
    reference_size: int | None = None


# Called with the name of a part of a test and how to measure it: measures it, or knows it from before.
Keep = Callable[[str, Callable[[], Results]], Results]


def at_once(part: str, measure: Callable[[], Results]) -> Results:
    """Keep nothing."""
    del part
    return measure()


def evaluate(
    predictor: Predictor,
    subject: Subject,
    test: Dataset,
    *,
    shifts: Mapping[str, Callable[[], Dataset]] | None = None,
    outside: Mapping[str, Outside] | None = None,
) -> Results:
    """In-distribution test, robustness under each shift, and detection of each set from outside.

    `shifts` are made one at a time, when their turn comes: they can be large.
    """
    results = Results()
    clean = predictor.predict(test.inputs)
    _measure(results, subject, "in-distribution", "", clean, test)
    for name, make in (shifts or {}).items():
        shifted = make()
        _measure(results, subject, "robustness", name, predictor.predict(shifted.inputs), shifted)
    _histogram(results, subject, "", clean)
    for name, unfamiliar in (outside or {}).items():
        found = predictor.predict(unfamiliar.inputs)
        results.add(subject, "ood-detection", name, detection(clean, found, unfamiliar.reference_size))
        _histogram(results, subject, name, found)
    return results


def detection(inside: Prediction, outside: Prediction, reference_size: int | None = None) -> dict[str, float]:
    """How well the score (entropy or variance) tells the two sets apart; outside is the positive class."""
    scores = np.concatenate([p.score.cpu().double().numpy() for p in (inside, outside)])
    sizes = [len(p.score) for p in (inside, outside)]
    is_out = np.repeat([0, 1], sizes)
    values = {
        "auroc": metrics.auroc(scores, is_out),
        "aupr": metrics.aupr(scores, is_out),
        "fpr_at_95_tpr": metrics.fpr_at_95_tpr(scores, is_out),
        "ood_share": sizes[1] / sum(sizes),
    }
    if reference_size is not None:
        weights = np.repeat([1.0, reference_size / sizes[1]], sizes)
        values["aupr_paper_share"] = metrics.aupr(scores, is_out, weights)
    return values


def _measure(
    results: Results, subject: Subject, evaluation: str, shift: str, found: Prediction, data: Dataset
) -> None:
    if isinstance(found, Regression):
        results.add(subject, evaluation, shift, regression_metrics(found, data.targets))
        return
    p, y = found.probabilities.cpu().double().numpy(), data.targets.cpu().numpy()
    entropy = found.entropy.cpu().numpy()
    results.add(subject, evaluation, shift, classification_metrics(p, y, entropy))
    results.draw(subject, "reliability", shift, metrics.reliability(p, y).as_dict())
    results.draw(subject, "risk-coverage", shift, _risk_curve(entropy, p.argmax(1) != y))


def _risk_curve(uncertainty: np.ndarray, wrong: np.ndarray) -> dict[str, list[float]]:
    """The risk-coverage curve, evenly thinned to what a figure can show."""
    found = metrics.risk_coverage(uncertainty, wrong)
    n = len(found.risk)
    kept = np.unique(np.linspace(0, n - 1, min(n, RISK_POINTS)).round().astype(int))
    columns = {"coverage": found.coverage, "risk": found.risk}
    return {name: values[kept].round(6).tolist() for name, values in columns.items()}


def classification_metrics(p: np.ndarray, y: np.ndarray, entropy: np.ndarray) -> dict[str, float]:
    """Every metric of class probabilities p [N, K]; MCC where there are two classes."""
    values = {
        "accuracy": metrics.accuracy(p, y),
        "nll": metrics.nll(p, y),
        "ece": metrics.ece(p, y),
        "mce": metrics.mce(p, y),
        "mce_all_classes": metrics.mce_all_classes(p, y),
        "brier": metrics.brier(p, y),
        "aurc": metrics.aurc(entropy, p.argmax(1) != y),
    }
    return values | ({"mcc": metrics.matthews(p, y)} if p.shape[1] == 2 else {})


def regression_metrics(found: Regression, targets: Tensor) -> dict[str, float]:
    """Errors of the mean, and the NLL of the mixture of samples."""
    f, y = found.samples.cpu().double().numpy(), targets.cpu().double().numpy()
    return {
        "mae": metrics.mae(f.mean(0), y),
        "rmse": metrics.rmse(f.mean(0), y),
        "nll": metrics.laplace_mixture_nll(f, found.scale, y),
    }


def _histogram(results: Results, subject: Subject, shift: str, found: Prediction) -> None:
    if isinstance(found, Classification):
        top = float(np.log(found.probabilities.shape[-1]))
        count, edges = np.histogram(found.entropy.cpu().numpy(), bins=ENTROPY_BINS, range=(0.0, top + 1e-6))
        results.draw(subject, "entropy", shift, {"edges": edges.tolist(), "count": count.tolist()})
