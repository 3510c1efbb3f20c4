"""Errors of held-out rows, each half of them at the epoch that the other half chooses.

The epoch with the smallest held-out NLL has small errors on just these rows, so that intervals made of them
are too narrow: with 45 rows a nominal 90 % covers a few percent less. Here each half of the rows has an epoch
of its own, chosen without it, and the errors are those at that epoch. No training is repeated: at each
validation the errors of a half replace those before where the other half has a new best score. Leaving out
one row at a time is not enough: the epoch is then nearly always that of all rows, and so are the errors.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sgpa.core.types import Regression
from sgpa.evaluation.metrics import laplace_mixture_nlls

MOST_ROWS = 1000  # more rows hardly profit from the choice of an epoch
DIGITS = 6


@dataclass(frozen=True)
class LeftOut:
    """One number a held-out row, of the epoch that the other half of the rows chooses.

    Example:
        >>> rows = LeftOut(torch.zeros(2), error=torch.tensor([1.0, 2.0]), variance=torch.tensor([0.0, 3.0]))
        >>> rows.residuals(torch.tensor([1.0, 1.0]))
        tensor([1., 1.])
    """

    score: Tensor  # mean score of the other half at that epoch, to be minimised   [n]
    error: Tensor  # |y - mean|                                                    [n]
    variance: Tensor  # of the model, without the noise of the likelihood          [n]

    def residuals(self, data_variance: Tensor) -> Tensor:
        """|y - mean| / deviation, [n], with the variance of the likelihood's noise as it is now, [n]."""
        return self.error / (self.variance + data_variance.to(self.variance)).sqrt()

    def of(self, prediction: Regression) -> Tensor:
        """`residuals` for the prediction of these rows, [n]."""
        return self.residuals(prediction.data_variance.cpu())

    def to_json(self) -> dict[str, list[float]]:
        """The three tensors as lists of rounded numbers."""
        return {name: [round(v, DIGITS) for v in value.tolist()] for name, value in vars(self).items()}

    @staticmethod
    def from_json(saved: dict[str, Any]) -> "LeftOut":
        """What `to_json` made."""
        score, error, variance = (
            torch.tensor(saved[name], dtype=torch.double) for name in ("score", "error", "variance")
        )
        return LeftOut(score, error, variance)


def update(before: LeftOut | None, prediction: Regression, targets: Tensor, select: str) -> LeftOut | None:
    """The errors after one more validation.

    Args:
        before: After the last one; None at the first.
        prediction: Of the held-out rows.
        targets: Their values, [n].
        select: What chooses the epoch: "nll", "mae" or "last".

    Returns:
        None where there are fewer than two rows, or more than `MOST_ROWS`.
    """
    y = targets.cpu().double()
    n = len(y)
    if not 2 <= n <= MOST_ROWS:
        return None
    error = (prediction.mean.cpu().double() - y).abs()  # [n]
    score = _of_other_half(prediction, y, error, select)
    now = LeftOut(score, error, prediction.model_variance.cpu().double())
    if before is None:
        return now
    better = (now.score < before.score) | torch.tensor(select == "last")  # [n]
    return LeftOut(*(torch.where(better, vars(now)[name], vars(before)[name]) for name in vars(now)))


def _of_other_half(prediction: Regression, y: Tensor, error: Tensor, select: str) -> Tensor:
    """For every row the mean score of the half that it is not in, [n]; every second row is one half."""
    rows = torch.zeros_like(error) if select == "last" else error
    if select == "nll":
        rows = torch.from_numpy(laplace_mixture_nlls(prediction.samples.cpu(), prediction.scale.cpu(), y))
    score = torch.empty_like(rows)
    score[::2], score[1::2] = rows[1::2].mean(), rows[::2].mean()
    return score
