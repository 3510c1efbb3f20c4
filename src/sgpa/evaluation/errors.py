"""Standard errors over test rows: of means, of metrics by the bootstrap, and of the AUROC of paired rows."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sgpa.core.errors import InputError
from sgpa.evaluation.checks import Floats, Ints, check_same_length, checked_array

RESAMPLES = 200


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error."""

    value: float
    error: float

    @staticmethod
    def mean(scores: npt.ArrayLike) -> "Estimate":
        """The mean of scores of single rows [N].

        >>> Estimate.mean([0, 1, 1, 1])
        Estimate(value=0.75, error=0.25)
        """
        x = checked_array("scores", scores, 1)
        if len(x) < 2:
            raise InputError(f"scores has {len(x)} value; an error needs two rows or more")
        return Estimate(float(x.mean()), float(x.std(ddof=1) / np.sqrt(len(x))))


def resamples(rows: int, count: int = RESAMPLES, seed: int = 0) -> Ints:
    """Indices of bootstrap samples, [count, rows]; methods that share them are compared row by row."""
    return np.random.default_rng(seed).integers(0, rows, (count, rows))


def bootstrap(metric: Callable[[Ints], float], samples: Ints) -> Floats:
    """A metric of every bootstrap sample, [count]; `metric` takes indices of rows."""
    return np.array([metric(rows) for rows in samples])


def auroc_terms(inside: npt.ArrayLike, outside: npt.ArrayLike) -> Floats:
    """Terms [N] whose mean is the AUROC of N scores against N scores, and whose spread gives its error.

    Row i of `outside` is a changed copy of row i of `inside`. With the placements
    p_i = share of `inside` below outside_i and q_i = share of `outside` above inside_i (DeLong et al. 1988),
    term i is p_i + q_i - AUROC, so that `Estimate.mean` counts the dependence between a row and its copy.
    Differences of terms compare two detectors on the same rows, means of terms join several sets.

    >>> terms = auroc_terms([0.1, 0.4, 0.3], [0.35, 0.8, 0.2])
    >>> round(float(terms.mean()), 4)
    0.6667
    """
    low, high = checked_array("inside", inside, 1), checked_array("outside", outside, 1)
    check_same_length(inside=low, outside=high)
    p = _share_below(high, low)
    q = 1 - _share_below(low, high)
    return p + q - p.mean()


def _share_below(x: Floats, others: Floats) -> Floats:
    """The share of `others` below every x, ties counting one half."""
    ordered = np.sort(others)
    sides = (np.searchsorted(ordered, x, side=side) for side in ("left", "right"))
    return np.asarray(sum(sides) / (2 * len(ordered)))
