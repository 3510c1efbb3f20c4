"""Likelihoods p(y | f) of a model's outputs f, and predictions from samples or moments of f."""

import torch
from torch import Tensor, nn

from sgpa.core.errors import InputError
from sgpa.core.precision import require_finite
from sgpa.core.types import Classification, Prediction, Regression

NOT_FINITE = "the outputs of the model are not finite; its weights are too large, or were damaged"


class Likelihood(nn.Module):
    """p(y | f), with its own parameters if it has any."""

    def nll(self, f: Tensor, targets: Tensor) -> Tensor:
        """-log p(y | f) for each row, averaged over samples when f is [S, B, C]; returns [B]."""
        raise NotImplementedError

    def predict(self, f: Tensor) -> Prediction:
        """The predictive distribution of S samples f [S, B, C]; an error where they are not finite."""
        raise NotImplementedError

    def predict_normal(self, mean: Tensor, covariance: Tensor) -> Prediction:
        """The predictive distribution of f ~ N(mean [B, C], covariance [B, C, C]), without random numbers."""
        raise NotImplementedError

    def check(self, targets: Tensor, outputs: int) -> None:
        """Raise unless the targets [B] are in the support of this likelihood."""
        raise NotImplementedError

    def initialise(self, targets: Tensor) -> None:
        """Set what depends on the training targets, once, before the first step."""


class CategoricalLikelihood(Likelihood):
    """p(y = k | f) = softmax(f)_k."""

    def nll(self, f: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy, [B]."""
        log_p = f.log_softmax(-1)  # [*S, B, K]
        index = targets.expand(f.shape[:-1]).unsqueeze(-1)
        nll = -log_p.gather(-1, index).squeeze(-1)  # [*S, B]
        return nll.mean(0) if f.ndim == 3 else nll

    def predict(self, f: Tensor) -> Classification:
        """Average the probabilities, not the logits."""
        require_finite(lambda: NOT_FINITE, f)
        p = f.softmax(-1, dtype=torch.promote_types(f.dtype, torch.float32))  # [S, B, K]
        return Classification(p.mean(0), torch.special.entr(p).sum(-1).mean(0))

    def predict_normal(self, mean: Tensor, covariance: Tensor) -> Classification:
        """E softmax(f) and the expected entropy E H[softmax(f)] by `POINTS` quasi-random points of N(0, I).

        All rows see the same points ε, through the symmetric root: f = mean + Σ^½ ε.
        """
        points = sobol_normal(mean.shape[-1]).to(mean)  # [P, C]
        parts = []
        for f, Sigma in zip(mean.split(ROWS), covariance.split(ROWS), strict=True):
            parts.append(self.predict(f + torch.einsum("pc,bcd->pbd", points, square_root(Sigma))))
        return Classification(
            torch.cat([p.probabilities for p in parts]), torch.cat([p.expected_entropy for p in parts])
        )

    def check(self, targets: Tensor, outputs: int) -> None:
        """Labels are whole numbers from 0 to K - 1."""
        if targets.is_floating_point():
            raise InputError(f"labels must be integers, got {targets.dtype}")
        bad = ((targets < 0) | (targets >= outputs)).nonzero()
        if len(bad):
            row = int(bad[0])
            raise InputError(f"row {row}: label {int(targets[row])} is outside 0..{outputs - 1}")


class LaplaceLikelihood(Likelihood):
    """p(y | f) = exp(-|y - μ| / b) / 2b with a learned scale b and μ = centre + spread f.

    `centre` and `spread` are set once from the training targets, so that outputs of order one fit targets
    of any unit. Likelihood and predictions are in the targets' own unit.
    """

    centre: Tensor
    spread: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.log_b = nn.Parameter(torch.zeros(()))  # relative to the spread
        self.register_buffer("centre", torch.zeros(()))
        self.register_buffer("spread", torch.ones(()))

    @torch.no_grad()
    def initialise(self, targets: Tensor) -> None:
        """Mean and standard deviation of the training targets."""
        self.centre.copy_(targets.double().mean())
        self.spread.copy_(targets.double().std(correction=0).clamp_min(1e-6))

    @property
    def scale(self) -> Tensor:
        """b in the targets' unit."""
        return self.log_b.exp() * self.spread

    def nll(self, f: Tensor, targets: Tensor) -> Tensor:
        """log 2b + |y - μ| / b, [B]."""
        nll = (2 * self.scale).log() + (targets - self.mean(f)).abs() / self.scale  # [*S, B]
        return nll.mean(0) if f.ndim == 3 else nll

    def mean(self, f: Tensor) -> Tensor:
        """μ, [*S, B]."""
        return self.centre + self.spread * f.squeeze(-1)

    def predict(self, f: Tensor) -> Regression:
        """A mixture with one component per sample."""
        require_finite(lambda: NOT_FINITE, f)
        return Regression(self.mean(f), self.scale.detach())

    def predict_normal(self, mean: Tensor, covariance: Tensor) -> Regression:
        """`POINTS` quantiles of N(mean, variance), whose own mean and variance are exactly these."""
        quantiles = normal_quantiles().to(mean)  # [P]
        deviation = covariance.squeeze(-1).clamp_min(0).sqrt()  # [B, 1]
        return self.predict(mean + deviation * quantiles[:, None, None])  # [P, B, 1]

    def check(self, targets: Tensor, outputs: int) -> None:
        """Targets are finite numbers and the model has one output."""
        if outputs != 1:
            raise InputError(f"the Laplace likelihood needs a model with 1 output, this one has {outputs}")
        bad = (~targets.isfinite()).nonzero()
        if len(bad):
            raise InputError(f"row {int(bad[0])}: the target is not a finite number")


POINTS = 128  # quadrature points of a normal distribution
ROWS = 256  # rows averaged at a time


def sobol_normal(width: int) -> Tensor:
    """Quasi-random points of N(0, I), always the same; each has its mirror image, [P, width] float64."""
    engine = torch.quasirandom.SobolEngine(width, scramble=True, seed=0)
    tiny = torch.finfo(torch.float32).eps  # keeps the quantiles finite
    points = torch.special.ndtri(engine.draw(POINTS // 2, dtype=torch.float64).clamp(tiny, 1 - tiny))
    return torch.cat([points, -points])


def normal_quantiles() -> Tensor:
    """Equally likely points of N(0, 1), scaled to variance 1, [P] float64."""
    points = torch.special.ndtri((torch.arange(POINTS, dtype=torch.float64) + 0.5) / POINTS)
    return points / points.square().mean().sqrt()


def square_root(Sigma: Tensor) -> Tensor:
    """The symmetric Σ^½ of positive semi-definite Σ [..., C, C]; negative eigenvalues are rounding errors."""
    values, Q = torch.linalg.eigh(Sigma.double())
    return ((Q * values.clamp_min(0).sqrt().unsqueeze(-2)) @ Q.mT).to(Sigma.dtype)


LIKELIHOODS: dict[str, type[Likelihood]] = {
    "categorical": CategoricalLikelihood,
    "laplace": LaplaceLikelihood,
}
