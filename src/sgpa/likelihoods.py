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
    """p(y | f) = exp(-|y - f| / b) / 2b with a learned scale b."""

    def __init__(self) -> None:
        super().__init__()
        self.log_b = nn.Parameter(torch.zeros(()))

    def nll(self, f: Tensor, targets: Tensor) -> Tensor:
        """log 2b + |y - f| / b, [B]."""
        log_2b = self.log_b + torch.log(torch.tensor(2.0, dtype=f.dtype, device=f.device))
        nll = log_2b + (targets - f.squeeze(-1)).abs() * (-self.log_b).exp()  # [*S, B]
        return nll.mean(0) if f.ndim == 3 else nll

    def predict(self, f: Tensor) -> Regression:
        """A mixture with one component per sample."""
        return Regression(f.squeeze(-1), self.log_b.detach().exp())

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
