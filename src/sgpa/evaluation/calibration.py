"""Calibration: confidence against accuracy in bins, and the errors computed from them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sgpa.core.errors import InputError
from sgpa.evaluation.checks import Floats, Ints, checked_classes

BINS = 15  # of top-label calibration
MCE_ANSWERS = 20  # a bin needs so many answers to count in `mce_20`


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
    p, y = checked_classes(probabilities, labels)
    return _bin(p.max(1), (p.argmax(1) == y).astype(np.float64), bins)


def ece(probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = BINS) -> float:
    """Expected calibration error of the top label: the gap |accuracy - confidence| of a bin, averaged.

    Args:
        probabilities: [N, K], rows that sum to 1.
        labels: integers [N], from 0 to K - 1.
        bins: number of confidence bins of equal width.

    Returns:
        A number in [0, 1]; bins are weighted by their number of answers.

    Example:
        >>> round(ece([[0.8, 0.2], [0.4, 0.6]], [0, 0]), 2)
        0.4
    """
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
    p, y = checked_classes(probabilities, labels)
    return _bin(p.ravel(), np.eye(p.shape[1])[y].ravel(), bins).mce
