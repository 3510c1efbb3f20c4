"""Which answers to trust: two limits, both chosen on held-out rows, each with a reason that is named.

*Unsure*: the answer's entropy (for numbers, its variance) is above a limit. The limit is the highest one for
which the answers that are trusted are wrong at most `max_error` of the time, by a bound that holds with
confidence 0.9 for the number of held-out rows there are.
*Unfamiliar*: the input's novelty is above that of 95 % of held-out rows.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from typing import Any, NotRequired, TypedDict

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn.functional import cross_entropy

from sgpa.core.errors import InputError, check_fields
from sgpa.core.limits import NOVELTY_ROWS
from sgpa.core.types import Classification, Prediction, Regression
from sgpa.inference.entropy_limit import default_max_error, entropy_limit, highest_limit

MAX_NOVELTY = 0.95  # percentile among held-out rows
VARIANCE_QUANTILE = 0.95  # of numbers: share of held-out rows whose variance is below the limit
INTERVAL = 0.9  # of numbers: the interval that `max_error` is about
INTERVAL_ROWS = 100  # held-out rows, below which intervals are called estimates
ROUNDING = 1e-4  # of an entropy
MOST_KEPT = 1000  # held-out rows whose scores are kept with a rule
SEVERAL = ("residuals", "scores", "wrong", "probabilities", "short_scores", "short_wrong")  # of many rows
STEEPEST = 2.0  # exponent of the temperature of short sequences
SMALLEST = 1e-30  # probability whose logarithm is taken

UNSURE, UNFAMILIAR = "unsure", "unfamiliar"


class SavedRule(TypedDict):
    """A rule in `run.json`."""

    max_uncertainty: float | None
    max_novelty: NotRequired[float]
    max_error: NotRequired[float | None]
    bound: NotRequired[float | None]
    rows: NotRequired[int]
    residuals: NotRequired[list[float]]
    scores: NotRequired[list[float]]
    wrong: NotRequired[list[bool]]
    short_length: NotRequired[float]
    short_exponent: NotRequired[float]
    short_scores: NotRequired[list[float]]
    short_wrong: NotRequired[list[bool]]
    probabilities: NotRequired[list[float]]


@dataclass(frozen=True)
class TrustRule:
    """Limits, and what held-out rows say about them."""

    max_uncertainty: float  # entropy in nats, or variance; -inf trusts nothing
    max_novelty: float = 1.0  # 1 where novelty is not measured
    max_error: float | None = None  # what was asked for; for numbers in their unit, None by default
    bound: float | None = None  # upper bound on the share of wrong answers among trusted ones
    rows: int = 0  # held-out rows that the limits were chosen on
    residuals: tuple[float, ...] = ()  # of numbers: |y - mean| / deviation of held-out rows, ascending
    scores: tuple[float, ...] = ()  # of classes: entropy of familiar held-out rows
    wrong: tuple[bool, ...] = ()  # whether their answers were wrong
    probabilities: tuple[float, ...] = ()  # of their answers; empty in older files
    short_length: float = 0.0  # sequences with fewer tokens get a temperature; see `calibrated`
    short_exponent: float = 0.0
    short_scores: tuple[float, ...] = ()  # entropy of parts of held-out sequences that are shorter than that
    short_wrong: tuple[bool, ...] = ()  # whether their answers were wrong

    def __post_init__(self) -> None:
        scores, residuals, short = self.scores, self.residuals, self.short_scores
        ascending = all(a <= b for a, b in pairwise((0.0, *residuals)))
        check_fields(
            "trust",
            [
                ("max_novelty", self.max_novelty, 0 < self.max_novelty <= 1, "above 0, up to 1"),
                ("max_error", self.max_error, self.max_error is None or self.max_error > 0, "above 0"),
                ("bound", self.bound, self.bound is None or 0 <= self.bound <= 1, "0 to 1"),
                ("rows", self.rows, self.rows >= 0, "0 or more"),
                ("residuals", residuals, ascending, "in ascending order from 0"),
                ("scores", scores, all(score > -ROUNDING for score in scores), "0 or more each"),
                ("wrong", self.wrong, len(self.wrong) == len(scores), "one for each of scores"),
                ("short_scores", short, all(score > -ROUNDING for score in short), "0 or more each"),
                ("short_wrong", self.short_wrong, len(self.short_wrong) == len(short), "one for each"),
                ("short_length", self.short_length, 0 <= self.short_length < np.inf, "0 or more"),
                ("short_exponent", self.short_exponent, 0 <= self.short_exponent <= STEEPEST, "0 to 2"),
                (
                    "probabilities",
                    self.probabilities,
                    len(self.probabilities) in (0, len(scores))
                    and all(0 <= p <= 1 for p in self.probabilities),
                    "one for each of scores, 0 to 1",
                ),
            ],
        )

    @property
    def guaranteed(self) -> bool:
        """Whether the bound keeps what was asked for; if not, there are too few rows, or no limit does."""
        return self.bound is not None and self.max_error is not None and self.bound <= self.max_error

    @property
    def doubt(self) -> str:
        """One sentence where the limit, or for numbers the interval, is an estimate; otherwise empty."""
        if self.residuals:
            return self._doubtful_interval
        if self.max_error is None or self.guaranteed:
            return ""
        if self.max_uncertainty == -np.inf:
            return (
                f"No answer is trusted: {self.rows} held-out rows show no limit on entropy with at most "
                f"{self.max_error:.1%} wrong answers below it."
            )
        return (
            f"The limit on entropy is an estimate: {self.rows} held-out rows cannot show that at most "
            f"{self.max_error:.1%} of the trusted answers are wrong."
        )

    @property
    def _doubtful_interval(self) -> str:
        if not 0 < self.rows < INTERVAL_ROWS:
            return ""
        least = INTERVAL - 2 * (INTERVAL * (1 - INTERVAL) / self.rows) ** 0.5  # two standard errors
        return (
            f"The intervals are estimates: with {self.rows} held-out rows, those of {INTERVAL:.0%} may cover "
            f"as few as {least:.0%} of new values."
        )

    @property
    def unmeasured(self) -> str:
        """One sentence where there were held-out rows, but too few to measure novelty; otherwise empty."""
        if not 0 < self.rows < NOVELTY_ROWS:
            return ""
        return f"No input is called unfamiliar: {self.rows} held-out rows are too few to measure novelty."

    @property
    def doubts(self) -> tuple[str, ...]:
        """`doubt` and `unmeasured`, as far as there is something to say."""
        return tuple(filter(None, (self.doubt, self.unmeasured)))

    def with_max_error(self, max_error: float) -> "TrustRule":
        """The rule for another share of wrong answers (for numbers: another reach of the 90 % interval)."""
        if not self.scores and not self.residuals:
            raise InputError(
                f"max_error={max_error}: this run keeps no scores of held-out rows to choose a limit from; "
                "train it again"
            )
        if self.residuals:
            return replace(self, max_error=max_error, max_uncertainty=_reach(self.residuals, max_error))
        _check(max_error, self.max_novelty)
        sure = np.array(self.probabilities or np.ones(len(self.scores)))
        limit, bound = entropy_limit(np.array(self.scores), np.array(self.wrong), sure, max_error)
        return replace(self, max_uncertainty=limit, max_error=max_error, bound=bound)

    def calibrated(self, prediction: Prediction, lengths: Tensor | None = None) -> Prediction:
        """The prediction as held-out rows say that it should be.

        Numbers get the residuals that their intervals are made of. Classes of a sequence of n tokens, fewer
        than most held-out sequences have, get the probabilities p^(1 / T) / Σ p^(1 / T) with
        T = (`short_length` / n)^`short_exponent`: a sentence says less than a page.
        """
        if isinstance(prediction, Classification):
            if lengths is None or not self.short_exponent:
                return prediction
            return tempered(prediction, self._temperature(lengths))
        if not self.residuals or not isinstance(prediction, Regression):
            return prediction
        return replace(prediction, residuals=torch.tensor(self.residuals, dtype=torch.float64))

    def _temperature(self, lengths: Tensor) -> Tensor:
        return (self.short_length / lengths.double().clamp_min(1)).clamp_min(1) ** self.short_exponent

    def with_short_rows(self, probabilities: Tensor, y: Tensor, lengths: Tensor, whole: float) -> "TrustRule":
        """The rule with the exponent that fits parts of held-out sequences best.

        Args:
            probabilities: of the parts, [P, K].
            y: classes of their sequences, [P].
            lengths: tokens of the parts, [P].
            whole: sequences from this length on are left as they are.
        """
        short = lengths < whole
        if int(short.sum()) < NOVELTY_ROWS:
            return self
        log_p = probabilities.double().clamp_min(SMALLEST).log()[short]  # [P, K]
        ratio = (whole / lengths.double().clamp_min(1))[short].unsqueeze(1)

        def nll(exponent: float) -> float:
            return float(cross_entropy(log_p / ratio**exponent, y[short]))

        best = round(float(minimize_scalar(nll, bounds=(0.0, STEEPEST), method="bounded").x), 6)
        p = (log_p / ratio**best).softmax(-1)
        score, wrong = torch.special.entr(p).sum(-1).numpy(), (p.argmax(-1) != y[short]).numpy()
        kept = _some(np.argsort(score, kind="stable"))
        return replace(
            self,
            short_length=whole,
            short_exponent=best,
            short_scores=tuple(round(float(v), 6) for v in score[kept]),
            short_wrong=tuple(bool(v) for v in wrong[kept]),
        )

    def _short_limit(self) -> float:
        """The limit for short sequences: the same share of wrong answers, among parts of held-out ones."""
        assert self.max_error is not None
        scores, wrong = np.array(self.short_scores), np.array(self.short_wrong)
        limit, _ = highest_limit(scores, wrong, np.ones(len(scores)), self.max_error)
        return min(limit, float(self.max_uncertainty))

    def to_json(self) -> dict[str, Any]:
        """The limits as plain data; -inf is null, which every reader of JSON understands."""
        return asdict(self) | {"max_uncertainty": _finite(self.max_uncertainty)}

    @staticmethod
    def from_json(metadata: Mapping[str, Any]) -> "TrustRule":
        """The rule of a `run.json`; version 0.1 knew one limit only, infinite where nothing was right."""
        if "trust" not in metadata:
            return TrustRule(-np.inf if metadata["threshold"] is None else metadata["threshold"])
        saved = {f.name: metadata["trust"].get(f.name, f.default) for f in fields(TrustRule)}
        saved |= {name: tuple(saved[name]) for name in SEVERAL}
        limit = saved.pop("max_uncertainty")
        return TrustRule(-np.inf if limit is None else limit, **saved)

    def reasons(
        self, uncertainty: Tensor, novelty: Tensor | None, lengths: Tensor | None = None
    ) -> list[str]:
        """For every row: empty to trust it, else the reasons not to."""
        limits = torch.full(uncertainty.shape, float(self.max_uncertainty), dtype=torch.float64)
        if lengths is not None and self.short_scores:
            limits[lengths < self.short_length] = self._short_limit()
        unsure = (uncertainty.cpu().double() > limits).tolist()
        new = [False] * len(unsure) if novelty is None else (novelty > float(self.max_novelty)).tolist()
        return [", ".join([UNSURE] * a + [UNFAMILIAR] * b) for a, b in zip(unsure, new, strict=True)]


def tempered(prediction: Classification, temperature: Tensor) -> Classification:
    """Probabilities at a temperature of its own for every row [N]; where it is 1 they stay as they are.

    The mutual information stays what it was, as far as the entropy allows.
    """
    changed = (temperature != 1).to(prediction.probabilities.device)
    if not changed.any():
        return prediction
    p = prediction.probabilities.double()
    T = temperature.to(p).unsqueeze(1)
    softer = (p.clamp_min(SMALLEST).log() / T).softmax(-1).to(prediction.probabilities)
    p = torch.where(changed.unsqueeze(1), softer, prediction.probabilities)
    entropy = torch.special.entr(p).sum(-1)
    expected = torch.where(
        changed, (entropy - prediction.mutual_information).clamp_min(0), prediction.expected_entropy
    )
    return Classification(p, expected)


def choose(
    prediction: Prediction,
    targets: Tensor,
    novelty: Tensor | None = None,
    *,
    max_error: float | None = None,
    max_novelty: float = MAX_NOVELTY,
    residuals: Tensor | None = None,
) -> TrustRule:
    """The rule for a model whose predictions of held-out rows are these.

    Args:
        prediction: of held-out rows.
        targets: their classes or values, [N].
        novelty: their novelty in [0, 1], [N]; None where it is not measured.
        max_error: For classes the share of wrong answers among the trusted ones that is accepted; by default
            `default_max_error`. For values the half-width of the 90 % interval that is accepted, in their
            unit; by default that of 95 % of the held-out rows.
        max_novelty: percentile above which an input counts as unfamiliar.
        residuals: For values |y - mean| / deviation of the held-out rows, [N], where these rows chose the
            model and its errors on them are too small; by default those of the prediction.
    """
    limit = 1.0 if novelty is None else max_novelty
    score = prediction.score.cpu().double().numpy()
    if not isinstance(prediction, Classification):
        return _for_values(prediction, targets, score, limit, max_error, residuals)
    familiar = np.ones(len(score), bool) if novelty is None else novelty.cpu().numpy() <= limit
    wrong = (prediction.label.cpu() != targets.cpu()).numpy()
    max_error = default_max_error(wrong[familiar]) if max_error is None else max_error
    _check(max_error, max_novelty)
    sure = prediction.probabilities.amax(-1).cpu().double().numpy()
    uncertainty, bound = entropy_limit(score[familiar], wrong[familiar], sure[familiar], max_error)
    kept = _some(np.argsort(score[familiar], kind="stable"))
    return TrustRule(
        uncertainty,
        limit,
        max_error,
        bound,
        len(score),
        scores=tuple(round(float(v), 6) for v in score[familiar][kept]),
        wrong=tuple(bool(v) for v in wrong[familiar][kept]),
        probabilities=tuple(round(min(1.0, float(v)), 6) for v in sure[familiar][kept]),
    )


def _for_values(
    prediction: Regression,
    targets: Tensor,
    score: np.ndarray,
    max_novelty: float,
    max_error: float | None,
    residuals: Tensor | None,
) -> TrustRule:
    if residuals is None:
        error = (prediction.mean.cpu() - targets.cpu()).abs().double()
        residuals = error / prediction.variance.cpu().double().sqrt()  # [N]
    kept = tuple(round(float(v), 6) for v in residuals.numpy()[_some(residuals.argsort().numpy())])
    usual = float(np.quantile(score, VARIANCE_QUANTILE))
    variance = usual if max_error is None else _reach(kept, max_error)
    return TrustRule(variance, max_novelty, max_error, rows=len(score), residuals=kept)


def _reach(residuals: tuple[float, ...], most: float) -> float:
    """The variance whose 90 % interval has the half-width `most`."""
    check_fields("trust", [("max_error", most, 0 < most < np.inf, "above 0")])
    one = Regression(torch.zeros(1, 1), torch.tensor(0.5**0.5), torch.tensor(residuals))  # of variance 1
    return float((most / one.interval(INTERVAL)[1].clamp_min(1e-12)) ** 2)


def _some(order: np.ndarray) -> np.ndarray:
    """At most `MOST_KEPT` of ordered rows, at equal steps, the last one included."""
    if len(order) <= MOST_KEPT:
        return order
    return order[np.linspace(0, len(order) - 1, MOST_KEPT).round().astype(int)]


def _check(max_error: float, max_novelty: float) -> None:
    check_fields(
        "trust",
        [
            ("max_error", max_error, 0 < max_error < 1, "between 0 and 1"),
            ("max_novelty", max_novelty, 0 < max_novelty <= 1, "above 0, up to 1"),
        ],
    )


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
