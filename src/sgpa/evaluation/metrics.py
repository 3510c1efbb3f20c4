"""Metrics of predictions and of their uncertainty, for a whole test set at once.

Letters: N inputs, K classes, S samples. Every function takes arrays or tensors, computes in float64 and
returns a float. Metrics are not averaged over batches: batches of unequal size would weigh inputs unequally.

Classification metrics take `probabilities` [N, K], rows that sum to 1, and integer `labels` [N]:

>>> probabilities, labels = [[0.8, 0.2], [0.4, 0.6]], [0, 0]
>>> accuracy(probabilities, labels), round(nll(probabilities, labels), 3)
(0.5, 0.57)
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sgpa.core.errors import InputError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# A softmax returns 0 for anything smaller, so a probability of 0 counts as the smallest positive number.
TINY = float(np.finfo(np.float32).tiny)
TINY_FLOAT16 = 2.0**-24
SUM_TOLERANCE, SUM_TOLERANCE_BFLOAT16 = 1e-3, 8e-3  # of a row of probabilities

BINS = 15  # of top-label calibration
MCE_ANSWERS = 20  # a bin needs so many answers to count in `mce_20`


def _dtype(values: npt.ArrayLike) -> str:
    """'float16', 'bfloat16', ... of an array or tensor; empty for a list."""
    return str(getattr(values, "dtype", "")).rpartition(".")[2]


def _array(name: str, values: npt.ArrayLike, ndim: int) -> Floats:
    """`values` as float64 with `ndim` axes, finite and not empty."""
    source: Any = values
    if hasattr(source, "detach"):  # a torch tensor, on any device and of any precision
        source = source.detach().cpu().double().numpy()
    array = np.asarray(source, dtype=np.float64)
    if array.ndim != ndim:
        raise InputError(f"{name} has shape {array.shape}; give it {ndim} axes")
    if array.size == 0:
        raise InputError(f"{name} is empty; a metric needs at least one input")
    if not np.isfinite(array).all():
        raise InputError(f"{name} holds NaN or infinity; look for the input that produced it")
    return array


def _same_length(**arrays: Floats) -> None:
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise InputError(f"lengths differ: {listed}; give one value per input")


def _classified(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Floats, Ints]:
    """Checked probabilities [N, K] and integer labels [N]."""
    p, y = _array("probabilities", probabilities, 2), _array("labels", labels, 1)
    _same_length(probabilities=p, labels=y)
    error = np.abs(p.sum(1) - 1)
    if p.min() < 0 or error.max() > (
        SUM_TOLERANCE_BFLOAT16 if _dtype(probabilities) == "bfloat16" else SUM_TOLERANCE
    ):
        row = int(error.argmax() if p.min() >= 0 else p.min(1).argmin())
        raise InputError(
            f"probabilities: row {row} has sum {p[row].sum():.4g} and minimum {p[row].min():.4g}; all must "
            "be at least 0 and sum to 1 over classes: pass softmax(logits)"
        )
    if not np.array_equal(y, np.floor(y)) or y.min() < 0 or y.max() >= p.shape[1]:
        raise InputError(f"labels must be whole numbers from 0 to {p.shape[1] - 1}")
    return p, y.astype(np.int64)


def _binary(
    scores: npt.ArrayLike, is_ood: npt.ArrayLike, weights: npt.ArrayLike | None
) -> tuple[Floats, ...]:
    """Checked scores, 0/1 marks and weights, each [N], with both kinds present."""
    s, out = _array("scores", scores, 1), _array("is_ood", is_ood, 1)
    w = np.ones_like(s) if weights is None else _array("weights", weights, 1)
    _same_length(scores=s, is_ood=out, weights=w)
    if not np.isin(out, (0, 1)).all():
        raise InputError("is_ood must hold only 0 (in-distribution) and 1 (out-of-distribution)")
    if w.min() < 0 or not (w @ out > 0 and w @ (1 - out) > 0):
        raise InputError("is_ood needs both kinds of input with positive weight; only one was given")
    return s, out, w


# Classification


def accuracy(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Share of the N inputs whose most probable class is the label, in [0, 1]."""
    p, y = _classified(probabilities, labels)
    return float((p.argmax(1) == y).mean())


def matthews(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Matthews correlation x 100 of the most probable class with the label, pooled over the whole set.

    With C the confusion matrix, t its row sums and h its column sums:
    (N tr C - t.h) / sqrt((N^2 - h.h)(N^2 - t.t)), and 0 where the denominator is 0
    (only one class predicted, or only one present).
    """
    p, y = _classified(probabilities, labels)
    n, k = p.shape
    predicted = p.argmax(1)
    t, h = (np.bincount(z, minlength=k).astype(np.float64) for z in (y, predicted))
    denominator = (n * n - h @ h) * (n * n - t @ t)
    return (
        float(100 * (n * (predicted == y).sum() - t @ h) / np.sqrt(denominator)) if denominator > 0 else 0.0
    )


def nll(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Mean of -log p(label) in nats.

    A probability of 0 counts as the smallest number its precision has, so that the value is finite: at most
    87.3 per input, or 16.6 for float16.
    """
    p, y = _classified(probabilities, labels)
    floor = TINY_FLOAT16 if _dtype(probabilities) == "float16" else TINY
    return float(-np.log(np.maximum(p[np.arange(len(y)), y], floor)).mean())


def brier(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Mean over inputs of sum_k (p_k - [k = label])^2: between 0 and 2."""
    p, y = _classified(probabilities, labels)
    return float(np.square(p - np.eye(p.shape[1])[y]).sum(1).mean())


# Calibration


@dataclass(frozen=True)
class Reliability:
    """Confidence against accuracy in B bins (lo, hi]; NaN where a bin is empty."""

    edges: Floats  # [B + 1], from 0 to 1
    confidence: Floats  # mean confidence of a bin    [B]
    accuracy: Floats  # share of correct answers      [B]
    count: Ints  # number of answers                  [B]

    @property
    def gap(self) -> Floats:
        """|accuracy - confidence| of the bins that are not empty."""
        return self._gap(1)

    def _gap(self, answers: int) -> Floats:
        kept = self.count >= answers
        return np.abs(self.accuracy[kept] - self.confidence[kept])

    @property
    def ece(self) -> float:
        """Expected calibration error: sum_b n_b / N |accuracy_b - confidence_b|."""
        return float(self.gap @ self.count[self.count > 0] / self.count.sum())

    @property
    def mce(self) -> float:
        """Maximum calibration error: the largest gap of a non-empty bin."""
        return float(self.gap.max())

    def mce_over(self, answers: int) -> float:
        """The largest gap of a bin with at least `answers` answers; NaN where no bin has as many."""
        gap = self._gap(answers)
        return float(gap.max()) if len(gap) else float("nan")

    def as_dict(self) -> dict[str, list[float | int | None]]:
        """The form saved in results.json: plain lists, with None for the NaN of an empty bin."""
        fields = {"confidence": self.confidence, "accuracy": self.accuracy}
        kept = {k: [None if np.isnan(x) else float(x) for x in v] for k, v in fields.items()}
        return {"edges": self.edges.tolist(), **kept, "count": self.count.tolist()}


def _bin(confidence: Floats, right: Floats, bins: int) -> Reliability:
    """Bins (lo, hi]; the first also holds 0, the last also holds what rounding puts above 1."""
    if bins < 1:
        raise InputError(f"bins={bins}; use at least 1")
    edges = np.linspace(0, 1, bins + 1)
    index = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    count = np.bincount(index, minlength=bins)
    divisor = np.where(count > 0, count, np.nan)
    sums = (np.bincount(index, weights=values, minlength=bins) for values in (confidence, right))
    mean_confidence, mean_right = (total / divisor for total in sums)
    return Reliability(edges, mean_confidence, mean_right, count)


def reliability(probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = BINS) -> Reliability:
    """Top-label reliability: the largest probability of each input against whether it is correct.

    >>> reliability([[0.8, 0.2], [0.4, 0.6]], [0, 0], bins=5).count.tolist()
    [0, 0, 1, 1, 0]
    """
    p, y = _classified(probabilities, labels)
    return _bin(p.max(1), (p.argmax(1) == y).astype(np.float64), bins)


def ece(probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = BINS) -> float:
    """Expected calibration error of the top label: the mean gap |accuracy - confidence| over answers."""
    return reliability(probabilities, labels, bins).ece


def mce(probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = BINS) -> float:
    """Maximum calibration error of the top label: the largest gap of a non-empty bin.

    One wrong answer alone in its bin can decide it; see `mce_20`.
    """
    return reliability(probabilities, labels, bins).mce


def mce_20(probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = BINS) -> float:
    """Maximum calibration error of the top label over bins of at least 20 answers; NaN without such a bin.

    >>> p = [[0.9, 0.1]] * 20 + [[0.6, 0.4]]  # the last one is alone in its bin, and wrong
    >>> y = [0] * 18 + [1, 1, 1]
    >>> round(mce(p, y), 2), round(mce_20(p, y), 2)
    (0.6, 0.0)
    """
    return reliability(probabilities, labels, bins).mce_over(MCE_ANSWERS)


def mce_all_classes(probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = 10) -> float:
    """The largest gap of a bin over all N K pairs (p_k, [k = label]); its bins are fuller than with `mce`."""
    p, y = _classified(probabilities, labels)
    return _bin(p.ravel(), np.eye(p.shape[1])[y].ravel(), bins).mce


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
    true, false = _rates(*_binary(scores, is_ood, weights))
    tpr, fpr = (np.r_[0, counts / counts[-1]] for counts in (true, false))
    return float(np.diff(fpr) @ (tpr[1:] + tpr[:-1]) / 2)


def aupr(scores: npt.ArrayLike, is_ood: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """Average precision with OOD as the positive class: sum_t (recall_t - recall_{t-1}) precision_t.

    Its chance level is the share of OOD inputs. `weights` [N] changes that share, for example to compare a
    subset of 10,000 OOD images with a number for 60,000: weight 6 on the OOD inputs, 1 on the others.
    """
    true, false = _rates(*_binary(scores, is_ood, weights))
    flagged = true + false
    precision = np.divide(true, flagged, out=np.zeros_like(true), where=flagged > 0)
    return float(np.diff(true / true[-1], prepend=0) @ precision)


def fpr_at_95_tpr(scores: npt.ArrayLike, is_ood: npt.ArrayLike) -> float:
    """Share of in-distribution inputs flagged by the highest threshold that flags 95 % of the OOD inputs.

    >>> fpr_at_95_tpr([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.5
    """
    true, false = _rates(*_binary(scores, is_ood, None))
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
    u, e = _array("uncertainty", uncertainty, 1), _array("errors", errors, 1)
    _same_length(uncertainty=u, errors=e)
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
    m, target = _array("mean", mean, 1), _array("y", y, 1)
    _same_length(mean=m, y=target)
    return m - target


def mae(mean: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Mean absolute error of predictions [N] against targets [N]."""
    return float(np.abs(_residuals(mean, y)).mean())


def rmse(mean: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Square root of the mean squared error of predictions [N] against targets [N]."""
    return float(np.sqrt(np.square(_residuals(mean, y)).mean()))


def laplace_mixture_nll(samples: npt.ArrayLike, scale: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Mean over inputs of -log 1/S sum_s Lap(y; f_s, b_s) for samples f [S,N] and targets y [N].

    The scale b > 0 is one number for all samples, or one for each, [S,1]. The mixture is inside the
    logarithm: averaging log-densities over samples would be another, larger number.
    """
    f, target = _array("samples", samples, 2), _array("y", y, 1)
    if f.shape[1] != len(target):
        raise InputError(f"samples has shape {f.shape} but y has {len(target)} values; give samples [S, N]")
    b = _array("scale", scale, np.ndim(scale))
    if b.shape not in ((), (len(f), 1)):
        raise InputError(f"scale has shape {b.shape}; give one number, or one per sample [{len(f)}, 1]")
    if b.min() <= 0:
        raise InputError(f"scale={b.min()}; the Laplace scale must be positive")
    log_density = -np.abs(f - target) / b - np.log(2 * b)  # [S,N]
    return float(-(np.logaddexp.reduce(log_density, axis=0) - np.log(len(f))).mean())
