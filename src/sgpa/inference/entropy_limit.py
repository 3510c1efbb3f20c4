"""The limit on entropy below which answers are trusted, chosen on held-out rows."""

import numpy as np
from scipy.special import betaincinv

MAX_ERROR = 0.1  # share of wrong answers among the trusted ones that is accepted, at most
CONFIDENCE = 0.9  # of the bound on wrong answers
MAX_LEVELS, ROWS_PER_LEVEL = 50, 40  # limits that are tried: the more rows, the more
LEAST_ROWS = 5  # held-out rows that an estimated limit keeps
UNSURE_BY = 2.0  # times `max_error`: what an estimated limit lets the answers themselves doubt, on average


def default_max_error(wrong: np.ndarray) -> float:
    """Half of the model's own share of wrong answers [N], at most 10 %.

    Ten percent of a model that is wrong in 5 % would trust every answer. One wrong and one right answer are
    added, so that few rows without an error do not ask for the impossible, and no less is asked for than a
    half of the rows could show if all of them were right.
    """
    n = len(wrong)
    share = (wrong.sum() + 1) / (n + 2)
    levels = _levels(n)
    provable = 1 - ((1 - CONFIDENCE) / levels) ** (1 / max(1, n // 2))
    return float(min(MAX_ERROR, max(share / 2, provable)))


def entropy_limit(
    score: np.ndarray, wrong: np.ndarray, sure: np.ndarray, max_error: float
) -> tuple[float, float | None]:
    """The limit on entropy, and the bound on wrong answers below it."""
    uncertainty, bound = highest_limit(score, wrong, sure, max_error)
    if len(score) and uncertainty == score.max():  # all rows may be trusted, however few they are
        guess = np.array([max_error, 1 - max_error])  # an answer that is as sure as it has to be
        uncertainty = max(uncertainty, float(-(guess * np.log(guess)).sum()))
    return uncertainty, bound


def _levels(rows: int) -> int:
    return int(np.clip(rows // ROWS_PER_LEVEL, 1, MAX_LEVELS))


def highest_limit(
    score: np.ndarray, wrong: np.ndarray, sure: np.ndarray, max_error: float
) -> tuple[float, float | None]:
    """The highest limit whose bound is at most `max_error`, and that bound.

    The limits that are tried keep equal steps of the rows. Each has its own Clopper-Pearson bound at
    confidence 1 - (1 - CONFIDENCE) / levels, so that all hold at once and the chosen one does. Where none
    passes, the highest limit with that share of wrong answers among held-out rows, of all limits that keep at
    least `LEAST_ROWS`, and its bound, which is then too high; -inf where there is no such limit. A few rows
    may be right by chance: the probabilities of their answers, `sure`, must not be far below what is asked.
    """
    if not len(score):
        return -np.inf, None
    order = np.argsort(score, kind="stable")
    score, errors, doubts = score[order], np.cumsum(wrong[order]), np.cumsum(1 - sure[order])
    levels = _levels(len(score))
    quantiles = np.quantile(score, np.arange(1, levels + 1) / levels, method="lower")
    ends = np.searchsorted(score, quantiles, side="right")  # rows that each limit keeps        [levels]
    bounds = _upper_bounds(errors[ends - 1], ends, levels)
    if (bounds <= max_error).any():
        last = np.flatnonzero(bounds <= max_error)[-1]
        return float(quantiles[last]), float(bounds[last])
    ends = np.searchsorted(score, score, side="right")  # every row may be the limit            [N]
    enough = ends >= min(LEAST_ROWS, len(score))
    credible = doubts[ends - 1] <= UNSURE_BY * max_error * ends
    fine = np.flatnonzero(enough & credible & (errors[ends - 1] <= max_error * ends))
    if not len(fine):
        return -np.inf, None
    last = fine[-1]
    return float(score[last]), float(_upper_bounds(errors[ends - 1], ends, levels)[last])


def _upper_bounds(errors: np.ndarray, rows: np.ndarray, levels: int) -> np.ndarray:
    """Clopper-Pearson bounds on the share of errors, each at confidence 1 - (1 - CONFIDENCE) / levels."""
    bounds = betaincinv(errors + 1, np.maximum(rows - errors, 1), 1 - (1 - CONFIDENCE) / levels)
    return np.where(errors < rows, bounds, 1.0)
