"""Linear maps with a distribution over their weights (Bayes by backprop, Blundell et al. 2015)."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from sgpa.core import noise


class BayesianLinear(nn.Linear):
    """y = W x + b with W_ij ~ N(weight_ij, softplus(rho_ij)²) independently; b is a point estimate.

    By default a call draws its noise by flipout (Wen et al. 2018): one perturbation of the weights for the
    batch, its signs drawn anew for every sequence. The tokens of a sequence see one weight matrix,
    distributed exactly as q(W), and different sequences nearly independent ones. Inside `drawing(model, S)`
    the rows of x are S copies of a batch, and each copy has one weight matrix of its own.

    >>> BayesianLinear(3, 2)(torch.randn(4, 5, 3)).shape
    torch.Size([4, 5, 2])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        prior_std: float = 1.0,
        initial_std: float = 0.00672,
    ) -> None:
        super().__init__(in_features, out_features, bias)
        self.prior_std = prior_std
        self.rho = nn.Parameter(torch.full_like(self.weight, math.log(math.expm1(initial_std))))  # [O, I]
        self.draws: int | None = None

    @classmethod
    def around(cls, linear: nn.Linear, prior_std: float, initial_std: float) -> "BayesianLinear":
        """The same map with its weights as means."""
        made = cls(
            linear.in_features,
            linear.out_features,
            linear.bias is not None,
            prior_std=prior_std,
            initial_std=initial_std,
        )
        made.weight, made.bias = linear.weight, linear.bias
        return made.to(linear.weight.device, linear.weight.dtype)

    @property
    def std(self) -> Tensor:
        """Standard deviation of every weight, [O, I]."""
        return nn.functional.softplus(self.rho)

    def kl(self) -> Tensor:
        """KL(q(W) || p(W)) in nats, []."""
        ratio = self.std / self.prior_std
        shift = self.weight / self.prior_std
        return (0.5 * (ratio.square() + shift.square() - 1) - ratio.log()).sum()

    def forward(self, x: Tensor) -> Tensor:
        """x [B, ..., I] -> [B, ..., O]; rows of the first dimension are sequences."""
        if self.draws is None:
            return self._flipout(x)
        shape = (self.draws, self.out_features, self.in_features)
        W = self.weight + self.std * noise.normal(shape, self.weight, rows=None)  # [S, O, I]
        rows = x.reshape(self.draws, -1, self.in_features)  # [S, N, I]
        y = (rows @ W.mT).reshape(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias

    def _flipout(self, x: Tensor) -> Tensor:
        dW = self.std * noise.normal(self.weight.shape, self.weight, rows=None)  # [O, I]
        ones = (1,) * (x.ndim - 2)
        r = 2 * noise.bernoulli(0.5, (x.shape[0], *ones, self.in_features), x, rows=0) - 1
        s = 2 * noise.bernoulli(0.5, (x.shape[0], *ones, self.out_features), x, rows=0) - 1
        return nn.functional.linear(x, self.weight, self.bias) + nn.functional.linear(x * r, dW) * s


def bayesian_maps(model: nn.Module) -> list[BayesianLinear]:
    """Every map of a model whose weights have a distribution."""
    return [m for m in model.modules() if isinstance(m, BayesianLinear)]


@contextmanager
def drawing(model: nn.Module, samples: int | None) -> Iterator[None]:
    """Inside the block every map draws `samples` weight matrices, one for each copy of the batch."""
    maps = bayesian_maps(model)
    for m in maps:
        m.draws = samples
    try:
        yield
    finally:
        for m in maps:
            m.draws = None
