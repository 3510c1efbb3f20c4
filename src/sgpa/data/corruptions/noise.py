"""Noise: every channel of every pixel on its own. Images are [n, 3, h, w] in [0, 1]."""

import torch
from torch import Tensor

from sgpa.data.corruptions.draws import Draws


def gaussian_noise(x: Tensor, draws: Draws, sigma: float) -> Tensor:
    """x + sigma e, e ~ N(0, 1)."""
    return x + sigma * draws.normal(*x.shape[1:])


def speckle_noise(x: Tensor, draws: Draws, sigma: float) -> Tensor:
    """x + x sigma e, e ~ N(0, 1)."""
    return x + x * sigma * draws.normal(*x.shape[1:])


def shot_noise(x: Tensor, draws: Draws, rate: float) -> Tensor:
    """Poisson(rate x) / rate, drawn by inverting the distribution function.

    A sampler that rejects would use up a number of draws that depends on the neighbours in the batch. Pixels
    have 256 values, so the 256 distribution functions F_v stand one after the other in one increasing table,
    v + F_v(k), and a single search finds the count.
    """
    v = (x * 255).round()  # grey levels                                              [n, 3, h, w]
    top = int(rate + 10 * rate**0.5 + 10)  # ten standard deviations above the brightest rate
    k = torch.arange(top, dtype=torch.float64, device=x.device)
    rates = torch.arange(256, dtype=torch.float64, device=x.device).unsqueeze(1) * (rate / 255)
    cdf = (torch.special.xlogy(k, rates) - rates - torch.lgamma(k + 1)).exp().cumsum(1).clamp(max=1)
    cdf[:, -1] = 1
    table = (torch.arange(256, device=x.device).unsqueeze(1) + cdf).flatten()  # [256 top]
    count = torch.searchsorted(table, v + draws.uniform(*x.shape[1:]), right=True) - v * top
    return count / rate


def impulse_noise(x: Tensor, draws: Draws, amount: float) -> Tensor:
    """A share `amount` of the values becomes 0 or 1 with equal chance."""
    u = draws.uniform(*x.shape[1:])
    return x.masked_fill(u < amount, 1.0).masked_fill(u < amount / 2, 0.0)
