"""Metrics of predictions and of their uncertainty, for a whole test set at once.

Letters: N inputs, K classes, S samples. Every function takes arrays or tensors, computes in float64 and
returns a float. Metrics are not averaged over batches: batches of unequal size would weigh inputs unequally.

Classification metrics take `probabilities` [N, K], rows that sum to 1, and integer `labels` [N]:

>>> probabilities, labels = [[0.8, 0.2], [0.4, 0.6]], [0, 0]
>>> accuracy(probabilities, labels), round(nll(probabilities, labels), 3)
(0.5, 0.57)
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sgpa.core.errors import InputError
from sgpa.evaluation.calibration import (
    BINS,
    MCE_ANSWERS,
    Reliability,
    ece,
    mce,
    mce_20,
    mce_all_classes,
    reliability,
)
from sgpa.evaluation.checks import (
    Floats,
    check_same_length,
    checked_array,
    checked_classes,
    checked_marks,
    dtype_of,
)

__all__ = [
    "BINS",
    "MCE_ANSWERS",
    "Reliability",
    "RiskCoverage",
    "accuracy",
    "aupr",
    "aurc",
    "auroc",
    "brier",
    "ece",
    "fpr_at_95_tpr",
    "laplace_mixture_nll",
    "laplace_mixture_nlls",
    "mae",
    "matthews",
    "mce",
    "mce_20",
    "mce_all_classes",
    "nll",
    "nlls",
    "reliability",
    "risk_coverage",
    "rmse",
]

# A softmax returns 0 for anything smaller, so a probability of 0 counts as the smallest positive number.
TINY = float(np.finfo(np.float32).tiny)
TINY_FLOAT16 = 2.0**-24

# Classification


def accuracy(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Share of inputs whose most probable class is the label.

    Args:
        probabilities: [N, K], rows that sum to 1.
        labels: integers [N], from 0 to K - 1.

    Returns:
        A number in [0, 1].

    Example:
        >>> accuracy([[0.8, 0.2], [0.4, 0.6]], [0, 0])
        0.5
    """
    p, y = checked_classes(probabilities, labels)
    return float((p.argmax(1) == y).mean())


def matthews(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Matthews correlation x 100 of the most probable class with the label, pooled over the whole set.

    With C the confusion matrix, t its row sums and h its column sums:
    (N tr C - t.h) / sqrt((N^2 - h.h)(N^2 - t.t)), and 0 where the denominator is 0
    (only one class predicted, or only one present).

    >>> matthews([[0.9, 0.1], [0.2, 0.8]], [0, 1])
    100.0
    """
    p, y = checked_classes(probabilities, labels)
    n, k = p.shape
    predicted = p.argmax(1)
    t, h = (np.bincount(z, minlength=k).astype(np.float64) for z in (y, predicted))
    denominator = (n * n - h @ h) * (n * n - t @ t)
    return (
        float(100 * (n * (predicted == y).sum() - t @ h) / np.sqrt(denominator)) if denominator > 0 else 0.0
    )


def nll(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Mean of -log p(label) in nats; see `nlls`."""
    return float(nlls(probabilities, labels).mean())


def nlls(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> Floats:
    """-log p(label) of every input in nats, [N].

    A probability of 0 counts as the smallest number its precision has, so that the value is finite: at most
    87.3 per input, or 16.6 for float16.
    """
    p, y = checked_classes(probabilities, labels)
    floor = TINY_FLOAT16 if dtype_of(probabilities) == "float16" else TINY
    return -np.log(np.maximum(p[np.arange(len(y)), y], floor))


def brier(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Mean over inputs of sum_k (p_k - [k = label])^2: between 0 and 2.

    >>> round(brier([[0.8, 0.2], [0.4, 0.6]], [0, 0]), 2)
    0.4
    """
    p, y = checked_classes(probabilities, labels)
    return float(np.square(p - np.eye(p.shape[1])[y]).sum(1).mean())


# Detection: a high score should mean a positive, here an OOD input. With marks of wrong answers in place of
# `is_ood` the same functions measure the detection of misclassified inputs.


def _rates(s: Floats, out: Floats, w: Floats) -> tuple[Floats, Floats]:
    """Weight of true and false positives at scores >= t, for each distinct t in falling order; [T], [T]."""
    _, inverse = np.unique(-s, return_inverse=True)
    true, false = (np.bincount(inverse, weights=w * kind).cumsum() for kind in (out, 1 - out))
    return true, false


def auroc(scores: npt.ArrayLike, is_ood: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """P(score of an OOD input > score of an in-distribution one), ties counting one half.

    >>> auroc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75
    """
    true, false = _rates(*checked_marks(scores, is_ood, weights))
    tpr, fpr = (np.r_[0, counts / counts[-1]] for counts in (true, false))
    return float(np.diff(fpr) @ (tpr[1:] + tpr[:-1]) / 2)


def aupr(scores: npt.ArrayLike, is_ood: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """Average precision with OOD as the positive class: sum_t (recall_t - recall_{t-1}) precision_t.

    Its chance level is the share of OOD inputs. `weights` [N] changes that share, for example to compare a
    subset of 10,000 OOD images with a number for 60,000: weight 6 on the OOD inputs, 1 on the others.
    """
    true, false = _rates(*checked_marks(scores, is_ood, weights))
    flagged = true + false
    precision = np.divide(true, flagged, out=np.zeros_like(true), where=flagged > 0)
    return float(np.diff(true / true[-1], prepend=0) @ precision)


def fpr_at_95_tpr(scores: npt.ArrayLike, is_ood: npt.ArrayLike) -> float:
    """Share of in-distribution inputs flagged by the highest threshold that flags 95 % of the OOD inputs.

    >>> fpr_at_95_tpr([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.5
    """
    true, false = _rates(*checked_marks(scores, is_ood, None))
    first = np.searchsorted(true, 0.95 * true[-1] - 1e-9)  # counts are whole: the slack only absorbs rounding
    return float(false[first] / false[-1])


# Selective prediction


def _tied_mean(keys: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Keys in rising order, and for each the mean of the values that share it; [N], [N]."""
    unique, inverse, count = np.unique(keys, return_inverse=True, return_counts=True)
    mean = np.bincount(inverse, weights=values) / count
    return np.repeat(unique, count), np.repeat(mean, count)


@dataclass(frozen=True)
class RiskCoverage:
    """Mean error of the most certain answers, by the share that is answered."""

    coverage: Floats  # 1/N, 2/N, ..., 1   [N]
    risk: Floats  # mean error of those    [N]


def risk_coverage(uncertainty: npt.ArrayLike, errors: npt.ArrayLike) -> RiskCoverage:
    """Risk at every coverage, from uncertainty [N] and error or loss [N] (1 = wrong, 0 = right).

    Inputs with equal uncertainty count with their mean error: the expected curve when ties break at random.
    """
    u, e = checked_array("uncertainty", uncertainty, 1), checked_array("errors", errors, 1)
    check_same_length(uncertainty=u, errors=e)
    kept = np.arange(1, len(u) + 1, dtype=np.float64)
    return RiskCoverage(kept / len(u), _tied_mean(u, e)[1].cumsum() / kept)


def aurc(uncertainty: npt.ArrayLike, errors: npt.ArrayLike) -> float:
    """Area under the risk-coverage curve, the mean risk over all N coverages; lower is better.

    >>> aurc([0.1, 0.2, 0.9], [0, 0, 1])  # the wrong answer is the least certain one
    0.1111111111111111
    """
    return float(risk_coverage(uncertainty, errors).risk.mean())


# Regression


def _residuals(mean: npt.ArrayLike, y: npt.ArrayLike) -> Floats:
    m, target = checked_array("mean", mean, 1), checked_array("y", y, 1)
    check_same_length(mean=m, y=target)
    return m - target


def mae(mean: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Mean absolute error of predictions [N] against targets [N].

    >>> mae([1.0, 2.0], [1.0, 4.0])
    1.0
    """
    return float(np.abs(_residuals(mean, y)).mean())


def rmse(mean: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Square root of the mean squared error of predictions [N] against targets [N].

    >>> rmse([1.0, 2.0], [1.0, 2.0])
    0.0
    """
    return float(np.sqrt(np.square(_residuals(mean, y)).mean()))


def laplace_mixture_nll(samples: npt.ArrayLike, scale: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Mean over inputs of `laplace_mixture_nlls`."""
    return float(laplace_mixture_nlls(samples, scale, y).mean())


def laplace_mixture_nlls(
    samples: npt.ArrayLike, scale: npt.ArrayLike, y: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """-log 1/S sum_s Lap(y; f_s, b_s) for samples f [S,N] and targets y [N], [N].

    The scale b > 0 is one number for all samples, or one for each, [S,1]. The mixture is inside the
    logarithm: averaging log-densities over samples would be another, larger number.
    """
    f, target = checked_array("samples", samples, 2), checked_array("y", y, 1)
    if f.shape[1] != len(target):
        raise InputError(f"samples has shape {f.shape} but y has {len(target)} values; give samples [S, N]")
    b = checked_array("scale", scale, np.ndim(scale))
    if b.shape not in ((), (len(f), 1)):
        raise InputError(f"scale has shape {b.shape}; give one number, or one per sample [{len(f)}, 1]")
    if b.min() <= 0:
        raise InputError(f"scale={b.min()}; the Laplace scale must be positive")
    log_density = -np.abs(f - target) / b - np.log(2 * b)  # [S,N]
    return np.asarray(np.log(len(f)) - np.logaddexp.reduce(log_density, axis=0))
