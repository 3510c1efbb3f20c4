"""From a predictor and test sets to records and curves."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from torch import Tensor

from sgpa.core.inputs import Inputs
from sgpa.core.types import Classification, Prediction, Predictor, Regression
from sgpa.data import Dataset
from sgpa.evaluation import metrics
from sgpa.evaluation.cases import Show, cases, coverage_name, covered, row_scores
from sgpa.evaluation.results import OodSet, Results, Subject

Judge = Callable[[Inputs, Prediction], tuple[np.ndarray, np.ndarray | None]]  # trusted? and novelty, [N]

ENTROPY_BINS = 24
RISK_POINTS = 101


def evaluate(
    predictor: Predictor,
    subject: Subject,
    test: Dataset,
    *,
    shifts: Mapping[str, Callable[[], Dataset]] | None = None,
    ood: Mapping[str, OodSet] | None = None,
    judge: Judge | None = None,
    adjust: Callable[[Prediction], Prediction] = lambda prediction: prediction,
    show: Show | None = None,
    classes: Sequence[str] = (),
) -> Results:
    """Evaluate in distribution, under each shift, and as a detector of each out-of-distribution set.

    Args:
        predictor: predicts classes or values.
        subject: the columns of all records.
        test: inputs with targets.
        shifts: name -> function that makes a shifted test set. They can be large and are made one at a time.
        ood: name -> inputs that do not come from the training distribution.
        judge: says which answers are trusted, and how novel their inputs are.
        adjust: what held-out rows add to a prediction: the residuals that intervals are made of.
        show: how a test row is shown; with it, the results also hold scores and cases of single rows.
        classes: their names, for the cases.

    Returns:
        One record per number, and curves for the report.

    Example:
        >>> subject = Subject("digits", "kernel", "sgpa", seed=0)
        >>> evaluate(model, subject, test, ood={"photos": OodSet(photos)}).records  # doctest: +SKIP
    """
    results = Results()
    clean = adjust(predictor.predict(test.inputs))
    _measure(results, subject, "in-distribution", "", clean, test)
    for name, make in (shifts or {}).items():
        shifted = make()
        _measure(results, subject, "robustness", name, predictor.predict(shifted.inputs), shifted)
    _histogram(results, subject, "", clean)
    if show is not None:
        results.add_curve(subject, "rows", "", row_scores(clean, test.targets))
        results.add_curve(subject, "cases", "", cases(clean, test.targets, show, classes))
    own = None if judge is None else judge(test.inputs, clean)
    for name, ood_set in (ood or {}).items():
        prediction = predictor.predict(ood_set.inputs)
        results.add(subject, "ood-detection", name, detection(clean, prediction, ood_set.reference_size))
        _histogram(results, subject, name, prediction)
        if judge is not None and own is not None:
            values = trust_of_ood(own, judge(ood_set.inputs, prediction))
            results.add(subject, "trust", name, values)
    if own is not None and isinstance(clean, Classification):
        wrong = (clean.label.cpu() != test.targets.cpu()).numpy()
        results.add(subject, "trust", "", trust_of_test(own[0], wrong))
    return results


def trust_of_test(trusted: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """Shares of the right and of the wrong answers that are trusted, and of wrong ones among the trusted."""
    shares = {
        "trusted_right": trusted[~wrong],
        "trusted_wrong": trusted[wrong],
        "trusted_error": wrong[trusted],
    }
    return {name: float(rows.mean()) for name, rows in shares.items() if len(rows)}


def trust_of_ood(
    inside: tuple[np.ndarray, np.ndarray | None], ood: tuple[np.ndarray, np.ndarray | None]
) -> dict[str, float]:
    """The share of OOD inputs whose answer is trusted, and the AUROC of novelty where it is measured."""
    values = {"trusted_ood": float(ood[0].mean())}
    if inside[1] is not None and ood[1] is not None:
        is_ood = np.repeat([0, 1], [len(inside[1]), len(ood[1])])
        values["novelty_auroc"] = metrics.auroc(np.concatenate([inside[1], ood[1]]), is_ood)
    return values


def detection(inside: Prediction, ood: Prediction, reference_size: int | None = None) -> dict[str, float]:
    """Metrics of OOD detection by the score (entropy or variance); OOD is the positive class."""
    scores = np.concatenate([p.score.cpu().double().numpy() for p in (inside, ood)])
    sizes = [len(p.score) for p in (inside, ood)]
    is_ood = np.repeat([0, 1], sizes)
    values = {
        "auroc": metrics.auroc(scores, is_ood),
        "aupr": metrics.aupr(scores, is_ood),
        "fpr_at_95_tpr": metrics.fpr_at_95_tpr(scores, is_ood),
        "ood_share": sizes[1] / sum(sizes),
    }
    if reference_size is not None:
        weights = np.repeat([1.0, reference_size / sizes[1]], sizes)
        values["aupr_paper_share"] = metrics.aupr(scores, is_ood, weights)
    return values


def classification_metrics(p: np.ndarray, y: np.ndarray, entropy: np.ndarray) -> dict[str, float]:
    """Every metric of class probabilities p [N, K], labels y [N] and predictive entropies [N].

    MCC is for two classes. The two metrics of error detection need right and wrong answers, `mce_20` a bin
    of at least 20 answers; where there are none, they are left out.
    """
    wrong = p.argmax(1) != y
    reliability = metrics.reliability(p, y)
    values = {
        "accuracy": metrics.accuracy(p, y),
        "nll": metrics.nll(p, y),
        "ece": reliability.ece,
        "mce": reliability.mce,
        "mce_all_classes": metrics.mce_all_classes(p, y),
        "brier": metrics.brier(p, y),
        "aurc": metrics.aurc(entropy, wrong),
    }
    if reliability.count.max() >= metrics.MCE_ANSWERS:
        values["mce_20"] = reliability.mce_over(metrics.MCE_ANSWERS)
    if wrong.any() and not wrong.all():
        values["error_auroc"] = metrics.auroc(entropy, wrong)
        values["error_fpr_at_95_tpr"] = metrics.fpr_at_95_tpr(entropy, wrong)
    return values | ({"mcc": metrics.matthews(p, y)} if p.shape[1] == 2 else {})


def regression_metrics(prediction: Regression, targets: Tensor) -> dict[str, float]:
    """Errors of the mean, the NLL of the mixture of samples, and the coverage of its intervals."""
    f, y = prediction.samples.cpu().double().numpy(), targets.cpu().double().numpy()
    return {
        "mae": metrics.mae(f.mean(0), y),
        "rmse": metrics.rmse(f.mean(0), y),
        "nll": metrics.laplace_mixture_nll(f, prediction.scale, y),
    } | {coverage_name(level): float(inside.mean()) for level, inside in covered(prediction, targets).items()}


def _measure(
    results: Results, subject: Subject, evaluation: str, shift: str, prediction: Prediction, data: Dataset
) -> None:
    if isinstance(prediction, Regression):
        results.add(subject, evaluation, shift, regression_metrics(prediction, data.targets))
        return
    p, y = prediction.probabilities.cpu().double().numpy(), data.targets.cpu().numpy()
    entropy = prediction.entropy.cpu().numpy()
    results.add(subject, evaluation, shift, classification_metrics(p, y, entropy))
    results.add_curve(subject, "reliability", shift, metrics.reliability(p, y).as_dict())
    results.add_curve(subject, "risk-coverage", shift, _risk_curve(entropy, p.argmax(1) != y))


def _risk_curve(uncertainty: np.ndarray, wrong: np.ndarray) -> dict[str, list[float]]:
    """The risk-coverage curve at no more than `RISK_POINTS` evenly spaced coverages."""
    curve = metrics.risk_coverage(uncertainty, wrong)
    n = len(curve.risk)
    kept = np.unique(np.linspace(0, n - 1, min(n, RISK_POINTS)).round().astype(int))
    columns = {"coverage": curve.coverage, "risk": curve.risk}
    return {name: values[kept].round(6).tolist() for name, values in columns.items()}


def _histogram(results: Results, subject: Subject, shift: str, prediction: Prediction) -> None:
    if isinstance(prediction, Classification):
        top = float(np.log(prediction.probabilities.shape[-1]))
        entropy = prediction.entropy.cpu().numpy()
        count, edges = np.histogram(entropy, bins=ENTROPY_BINS, range=(0.0, top + 1e-6))
        results.add_curve(subject, "entropy", shift, {"edges": edges.tolist(), "count": count.tolist()})
