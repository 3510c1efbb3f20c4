"""A Gaussian process as the last layer, by random Fourier features (SNGP, Liu et al. 2020)."""

import math

import torch
from torch import Tensor, nn


class RandomFeatureHead(nn.Module):
    """f = β' φ(x) with φ(x) = cos(W LN(x) + b), W and b random and fixed, prior β ~ N(0, I).

    `ridge` is the noise variance s of the observations f + noise. Given rows with features Φ [N, F] the
    posterior of β has covariance s Λ^-1, Λ = s I + Φ'Φ.

    >>> RandomFeatureHead(8, 3, features=16)(torch.randn(4, 8)).shape
    torch.Size([4, 3])
    """

    W: Tensor
    b: Tensor

    def __init__(self, width: int, outputs: int, features: int = 1024, ridge: float = 1.0) -> None:
        super().__init__()
        self.ridge = ridge
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.register_buffer("W", torch.randn(features, width) * math.sqrt(2 / width))  # [F, E]
        self.register_buffer("b", 2 * math.pi * torch.rand(features))  # [F]
        self.output = nn.Linear(features, outputs, bias=False)  # β'

    def features(self, x: Tensor) -> Tensor:
        """φ(x), [..., E] -> [..., F]."""
        return nn.functional.linear(self.norm(x), self.W, self.b).cos()

    def forward(self, x: Tensor) -> Tensor:
        """The mean of the GP, [..., E] -> [..., K]."""
        return self.output(self.features(x))

    def variance(self, phi: Tensor, covariance: Tensor) -> Tensor:
        """v = s φ' Λ^-1 φ of rows φ [B, F].

        Λ^-1 is one [F, F] for all classes, or one for each, [K, F, F]; v is [B, 1] or [B, K].
        """
        phi = phi.to(covariance.dtype)
        each = covariance.unsqueeze(0) if covariance.ndim == 2 else covariance  # [1 or K, F, F]
        quadratic = torch.stack([(phi @ C * phi).sum(-1) for C in each], -1)  # [B, 1 or K]
        return self.ridge * quadratic.clamp_min(0)
