"""How far the variance of the heads shrinks the confidence: a few numbers, fitted on held-out rows.

Noise of variance σ_l² (in units of the heads' spread, times the variance that the GP leaves) in layer l gives
the outputs the variance v(x) = Σ_l σ_l² r_l(x) to first order. One more term is the variance of a GP over
what the model's head reads. A classifier's logits are divided by

    T(x) = (τ² + π/8 v(x))^½,

the probit approximation of the mean of softmax(f / τ) over f ~ N(f(x), v): the order of the classes never
changes. A regressor's predictive variance is τ² + v(x). τ² is the part of the data; of a classifier it
is at least 1, the model's own confidence, unless the model is less confident than it should be.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sgpa.core.errors import InputError
from sgpa.gp.temperature import careful_temperature, mixture_nll

PROBIT = math.pi / 8
LARGEST_NOISE = 1.0  # variance of noise that is drawn, in units of the spread of a head
LARGEST = 20.0  # of the logarithm of a scale, in units of the outputs' own


@dataclass(frozen=True)
class Scales:
    """τ² and σ_l²; `Scales.none` leaves every output as it is."""

    data: Tensor  # τ²      []
    layers: Tensor  # σ_l² of the layers, then of what the head reads   [L + 1]

    @staticmethod
    def none(layers: int) -> "Scales":
        """τ = 1 and σ = 0 of so many layers: predictions are those of the model alone."""
        return Scales(torch.ones((), dtype=torch.float64), torch.zeros(layers + 1, dtype=torch.float64))

    @property
    def drawn(self) -> Tensor:
        """σ_l² of noise that is drawn, [L + 1]: at most a head's own spread, beyond which first order fails.

        Noise of what the model's head reads is not drawn.
        """
        inner, last = self.layers.clamp_max(LARGEST_NOISE).split([len(self.layers) - 1, 1])
        return torch.cat([inner, torch.zeros_like(last)])

    @property
    def not_drawn(self) -> "Scales":
        """The scales without the noise that is drawn; passes with noise are divided by its T(x)."""
        return Scales(self.data, self.layers - self.drawn)

    def variance(self, carried: Tensor) -> Tensor:
        """v of rows with carried variances r [..., L], [...]."""
        return carried @ self.layers.to(carried)

    def temperature(self, carried: Tensor) -> Tensor:
        """T(x), [..., 1]."""
        return (self.data.to(carried) + PROBIT * self.variance(carried)).sqrt().unsqueeze(-1)


def fit_classes(logits: Tensor, carried: Tensor, targets: Tensor) -> Scales:
    """The scales with the lowest NLL of held-out classes: carried [N, L], targets [N].

    Logits are [N, C], or [S, N, C] of samples, whose probabilities are averaged.
    """
    if int(targets.min()) < 0 or int(targets.max()) >= logits.shape[-1]:
        worst = int(targets.min()) if int(targets.min()) < 0 else int(targets.max())
        raise InputError(
            f"calibrate: label {worst} (allowed: 0 to {logits.shape[-1] - 1}, the model's classes)"
        )
    if bool((targets == targets[0]).all()):
        raise InputError(
            f"calibrate: all {len(targets)} rows have label {int(targets[0])}; two classes or more are needed"
        )
    f, r = (logits if logits.ndim == 3 else logits.unsqueeze(0)).double(), carried.double()
    alone = float(careful_temperature(f, targets)) ** 2
    return _fit(r, lambda scales: mixture_nll(f / scales.temperature(r), targets), alone, min(1.0, alone))


def fit_values(values: Tensor, carried: Tensor, targets: Tensor) -> Scales:
    """The scales with the lowest Gaussian NLL of held-out values: values [N], carried [N, L], targets [N]."""
    r, square = carried.double(), (targets.double() - values.double()).square()  # [N]

    def nll(scales: Scales) -> Tensor:
        total = scales.data + scales.variance(r)
        return 0.5 * (total.log() + square / total).mean()

    alone = float(square.mean().clamp_min(1e-12))
    return _fit(r, nll, alone, 0.01 * alone)


def _fit(carried: Tensor, nll: Callable[[Scales], Tensor], alone: float, floor: float) -> Scales:
    """Minimise over log τ² and log σ².

    Args:
        carried: r [N, L]; taken in units of its mean, so that one start serves all layers.
        nll: of held-out rows.
        alone: τ² where all σ are 0, which is one of the starts.
        floor: lower bound of τ².
    """
    unit = carried.mean(0).clamp_min(1e-12)  # [L]
    count = carried.shape[1]

    def scales(x: Tensor) -> Scales:
        positive = alone * x.clamp(-LARGEST, LARGEST).exp()
        return Scales(floor + positive[0], positive[1:] / unit)

    results = [Scales(torch.tensor(alone, dtype=torch.float64), torch.zeros(count, dtype=torch.float64))]
    for share in (0.03, 1.0):
        x = torch.full((1 + count,), math.log(share / count), dtype=torch.float64, device=carried.device)
        x[0] = -2.0
        x.requires_grad_()
        search = torch.optim.LBFGS([x], max_iter=300, line_search_fn="strong_wolfe")

        def closure(x: Tensor = x, search: torch.optim.LBFGS = search) -> float:
            search.zero_grad()
            loss = nll(scales(x))
            loss.backward()
            return loss.item()

        search.step(closure)
        fitted = scales(x.detach())
        negligible = fitted.layers * unit < 1e-4 * fitted.data
        results.append(Scales(fitted.data, fitted.layers.masked_fill(negligible, 0.0)))
    best = min(results, key=lambda each: float(nll(each)))
    return Scales(best.data.cpu(), best.layers.cpu())
