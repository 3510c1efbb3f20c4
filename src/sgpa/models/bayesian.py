"""Linear maps with a distribution over their weights (Bayes by backprop, Blundell et al. 2015)."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from sgpa.core import noise


class BayesianLinear(nn.Linear):
    """y = W x + b with W_ij ~ N(weight_ij, softplus(rho_ij)²) independently; b is a point estimate.

    On its own every call draws noise by `estimator`, one of `ESTIMATORS`. Inside `drawing(model, S)` the rows
    of x are S copies of a batch and each copy has one weight matrix of its own. Every call draws anew: a
    model that calls a map once per pass sees one and the same weights in all places.

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
        estimator: str = "flipout",
    ) -> None:
        super().__init__(in_features, out_features, bias)
        self.prior_std, self.estimator = prior_std, estimator
        self.rho = nn.Parameter(torch.full_like(self.weight, math.log(math.expm1(initial_std))))  # [O, I]
        self.draws: int | None = None

    @classmethod
    def around(
        cls, linear: nn.Linear, prior_std: float, initial_std: float, estimator: str
    ) -> "BayesianLinear":
        """The same map with its weights as means."""
        made = cls(
            linear.in_features,
            linear.out_features,
            linear.bias is not None,
            prior_std=prior_std,
            initial_std=initial_std,
            estimator=estimator,
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
            return ESTIMATORS[self.estimator](self, x)
        shape = (self.draws, self.out_features, self.in_features)
        W = self.weight + self.std * noise.normal(shape, self.weight, rows=None)  # [S, O, I]
        rows = x.reshape(self.draws, -1, self.in_features)  # [S, N, I]
        y = (rows @ W.mT).reshape(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias


def shared(layer: BayesianLinear, x: Tensor) -> Tensor:
    """One weight matrix for the whole batch: unbiased, but all rows share its noise."""
    W = layer.weight + layer.std * noise.normal(layer.weight.shape, layer.weight, rows=None)
    return nn.functional.linear(x, W, layer.bias)


def flipout(layer: BayesianLinear, x: Tensor) -> Tensor:
    """One perturbation for the batch, its signs drawn anew for every sequence (Wen et al. 2018).

    The tokens of a sequence see one and the same weight matrix, distributed exactly as q(W), and different
    sequences nearly independent ones.
    """
    dW = layer.std * noise.normal(layer.weight.shape, layer.weight, rows=None)  # [O, I]
    ones = (1,) * (x.ndim - 2)
    r = 2 * noise.bernoulli(0.5, (x.shape[0], *ones, layer.in_features), x, rows=0) - 1
    s = 2 * noise.bernoulli(0.5, (x.shape[0], *ones, layer.out_features), x, rows=0) - 1
    return nn.functional.linear(x, layer.weight, layer.bias) + nn.functional.linear(x * r, dW) * s


def local(layer: BayesianLinear, x: Tensor) -> Tensor:
    """Noise on the outputs instead of the weights (Kingma et al. 2015).

    Exact for every single token; the tokens of one sequence are treated as if each had its own weights.
    """
    mean = nn.functional.linear(x, layer.weight, layer.bias)
    variance = nn.functional.linear(x.square(), layer.std.square())
    return mean + variance.clamp_min(1e-16).sqrt() * noise.normal(mean.shape, mean, rows=0)


ESTIMATORS: dict[str, Callable[[BayesianLinear, Tensor], Tensor]] = {
    "flipout": flipout,
    "local": local,
    "shared": shared,
}


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
