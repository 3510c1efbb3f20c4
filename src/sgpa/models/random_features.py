"""A Gaussian process as the last layer, by random Fourier features (SNGP, Liu et al. 2020)."""

import math

import torch
from torch import Tensor, nn


class RandomFeatureHead(nn.Module):
    """f = β' φ(x) with φ(x) = cos(W LN(x) + b), W and b random and fixed, prior β ~ N(0, I / ridge).

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
