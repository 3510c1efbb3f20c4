"""How the last layer's outputs become probabilities: p(y | f), and predictions from samples of f."""

import torch
from torch import Tensor, nn

from sgpa.errors import InputError
from sgpa.types import Classification, Prediction, Regression


class Likelihood(nn.Module):
    """p(y | f). Owns its parameters, if any; knows nothing of the model."""

    def nll(self, f: Tensor, targets: Tensor) -> Tensor:
        """-log p(y | f) for each row, averaged over samples when f is [S, B, C]; returns [B]."""
        raise NotImplementedError

    def predict(self, f: Tensor) -> Prediction:
        """The predictive distribution of S samples f [S, B, C]."""
        raise NotImplementedError

    def check(self, targets: Tensor, outputs: int) -> None:
        """Raise unless the targets [B] can come from this likelihood."""
        raise NotImplementedError

    def initialise(self, targets: Tensor) -> None:
        """Set what is best set from the training targets, once, before the first step."""


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
        p = f.softmax(-1)  # [S, B, K]
        return Classification(p.mean(0), torch.special.entr(p).sum(-1).mean(0))

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
        return Regression(self.mean(f), self.scale.detach())

    def check(self, targets: Tensor, outputs: int) -> None:
        """Targets are finite numbers and the model has one output."""
        if outputs != 1:
            raise InputError(f"the Laplace likelihood needs a model with 1 output, this one has {outputs}")
        bad = (~targets.isfinite()).nonzero()
        if len(bad):
            raise InputError(f"row {int(bad[0])}: the target is not a finite number")


LIKELIHOODS: dict[str, type[Likelihood]] = {
    "categorical": CategoricalLikelihood,
    "laplace": LaplaceLikelihood,
}
