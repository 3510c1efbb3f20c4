"""Which answers to trust: two limits, both chosen on held-out rows, each with a reason that is named.

*Unsure*: the answer's entropy (for numbers, its variance) is above a limit. The limit is the highest one for
which the answers that are trusted are wrong at most `max_error` of the time, by a bound that holds with
confidence 0.9 for the number of held-out rows there are.
*Unfamiliar*: the input's novelty is above that of 95 % of held-out rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from scipy.stats import beta
from torch import Tensor

from sgpa.core.errors import check_fields
from sgpa.core.inputs import Inputs
from sgpa.core.types import Classification, Prediction

MAX_ERROR = 0.1  # share of wrong answers among the trusted ones that is accepted
MAX_NOVELTY = 0.95  # percentile among held-out rows
CONFIDENCE = 0.9  # of the bound on wrong answers
MAX_LEVELS, ROWS_PER_LEVEL = 50, 40  # limits that are tried: the more rows, the more
VARIANCE_QUANTILE = 0.95  # of numbers: share of held-out rows whose variance is below the limit

UNSURE, UNFAMILIAR = "unsure", "unfamiliar"


@dataclass(frozen=True)
class TrustRule:
    """Limits, and what held-out rows say about them."""

    max_uncertainty: float  # entropy in nats, or variance; -inf trusts nothing
    max_novelty: float = 1.0  # 1 where novelty is not measured
    max_error: float | None = None  # what was asked for; None for numbers
    bound: float | None = None  # upper bound on the share of wrong answers among trusted ones
    rows: int = 0  # held-out rows that the limits were chosen on

    @property
    def guaranteed(self) -> bool:
        """Whether the bound keeps what was asked for; if not, there are too few rows, or no limit does."""
        return self.bound is not None and self.max_error is not None and self.bound <= self.max_error

    def to_json(self) -> dict[str, Any]:
        """The limits as plain data; -inf is null, which every reader of JSON understands."""
        return asdict(self) | {"max_uncertainty": _finite(self.max_uncertainty)}

    @staticmethod
    def from_json(metadata: Mapping[str, Any]) -> "TrustRule":
        """The rule of a `run.json`; version 0.1 knew one limit only, infinite where nothing was right."""
        if "trust" not in metadata:
            return TrustRule(-np.inf if metadata["threshold"] is None else metadata["threshold"])
        saved = {f.name: metadata["trust"].get(f.name, f.default) for f in fields(TrustRule)}
        limit = saved.pop("max_uncertainty")
        return TrustRule(-np.inf if limit is None else limit, **saved)

    def reasons(self, uncertainty: Tensor, novelty: Tensor | None) -> list[str]:
        """For every row: empty to trust it, else the reasons not to."""
        unsure = (uncertainty.cpu().double() > self.max_uncertainty).tolist()
        new = [False] * len(unsure) if novelty is None else (novelty > self.max_novelty).tolist()
        return [", ".join([UNSURE] * a + [UNFAMILIAR] * b) for a, b in zip(unsure, new, strict=True)]


def make_judge(
    rule: TrustRule, novelty: Callable[[Inputs], Tensor] | None
) -> Callable[[Inputs, Prediction], tuple[np.ndarray, np.ndarray | None]]:
    """A function of inputs and predictions: which rows are trusted, and how novel they are, [N] each."""

    def judge(inputs: Inputs, prediction: Prediction) -> tuple[np.ndarray, np.ndarray | None]:
        novel = None if novelty is None else novelty(inputs)
        trusted = np.array([not reason for reason in rule.reasons(prediction.score, novel)], bool)
        return trusted, None if novel is None else novel.numpy()

    return judge


def choose(
    prediction: Prediction,
    targets: Tensor,
    novelty: Tensor | None = None,
    *,
    max_error: float = MAX_ERROR,
    max_novelty: float = MAX_NOVELTY,
) -> TrustRule:
    """The rule for a model whose predictions of held-out rows are these.

    Args:
        prediction: of held-out rows.
        targets: their classes or values, [N].
        novelty: their novelty in [0, 1], [N]; None where it is not measured.
        max_error: share of wrong answers among the trusted ones that is accepted.
        max_novelty: percentile above which an input counts as unfamiliar.
    """
    check_fields(
        "trust",
        [
            ("max_error", max_error, 0 < max_error < 1, "between 0 and 1"),
            ("max_novelty", max_novelty, 0 < max_novelty <= 1, "above 0, up to 1"),
        ],
    )
    limit = 1.0 if novelty is None else max_novelty
    score = prediction.score.cpu().double().numpy()
    familiar = np.ones(len(score), bool) if novelty is None else novelty.cpu().numpy() <= limit
    if not isinstance(prediction, Classification):
        return TrustRule(float(np.quantile(score, VARIANCE_QUANTILE)), limit, rows=len(score))
    wrong = (prediction.label.cpu() != targets.cpu()).numpy()
    uncertainty, bound = _highest_limit(score[familiar], wrong[familiar], max_error)
    if (
        familiar.any() and uncertainty == score[familiar].max()
    ):  # all rows may be trusted, however few they are
        guess = np.array([max_error, 1 - max_error])  # an answer that is as sure as it has to be
        uncertainty = max(uncertainty, float(-(guess * np.log(guess)).sum()))
    return TrustRule(uncertainty, limit, max_error, bound, len(score))


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _highest_limit(score: np.ndarray, wrong: np.ndarray, max_error: float) -> tuple[float, float | None]:
    """The highest limit whose bound is at most `max_error`, and that bound.

    The limits that are tried keep equal steps of the rows. Each has its own Clopper-Pearson bound at
    confidence 1 - (1 - CONFIDENCE) / levels, so that all hold at once and the chosen one does. Where none
    passes, the highest limit with that share of wrong answers among held-out rows, and its bound, which is
    then too high; -inf where there is no such limit.
    """
    if not len(score):
        return -np.inf, None
    order = np.argsort(score, kind="stable")
    score, errors = score[order], np.cumsum(wrong[order])
    levels = int(np.clip(len(score) // ROWS_PER_LEVEL, 1, MAX_LEVELS))
    quantiles = np.quantile(score, np.arange(1, levels + 1) / levels, method="lower")
    ends = np.searchsorted(score, quantiles, side="right")  # rows that each limit keeps        [levels]
    kept_errors = errors[ends - 1]
    bounds = np.where(
        kept_errors < ends,
        beta.ppf(1 - (1 - CONFIDENCE) / levels, kept_errors + 1, np.maximum(ends - kept_errors, 1)),
        1.0,
    )
    for fine in (bounds <= max_error, kept_errors <= max_error * ends):
        if fine.any():
            last = np.flatnonzero(fine)[-1]
            return float(quantiles[last]), float(bounds[last])
    return -np.inf, None
