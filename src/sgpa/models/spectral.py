"""Linear maps of bounded spectral norm, which stretch distances by at most the bound."""

import torch
from torch import Tensor, nn

from sgpa.core.precision import full_precision


class SpectralLinear(nn.Linear):
    """y = W min(1, bound / σ) x + b with σ, the largest singular value of W, by power iteration.

    Every training pass makes `iterations` steps of it; evaluation uses the last estimate.

    >>> SpectralLinear(3, 2)(torch.randn(4, 3)).shape
    torch.Size([4, 2])
    """

    u: Tensor
    v: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        bound: float = 0.95,
        iterations: int = 1,
    ) -> None:
        super().__init__(in_features, out_features, bias)
        self.bound, self.iterations = bound, iterations
        self.register_buffer("u", nn.functional.normalize(torch.randn(out_features), dim=0))  # [O]
        self.register_buffer("v", nn.functional.normalize(torch.randn(in_features), dim=0))  # [I]
        self.iterate(INITIAL_STEPS)

    @classmethod
    def around(cls, linear: nn.Linear, bound: float, iterations: int) -> "SpectralLinear":
        """The same map, bounded."""
        made = cls(
            linear.in_features,
            linear.out_features,
            linear.bias is not None,
            bound=bound,
            iterations=iterations,
        )
        made.weight, made.bias = linear.weight, linear.bias
        made.to(linear.weight.device, linear.weight.dtype).iterate(INITIAL_STEPS)
        return made

    @torch.no_grad()
    def iterate(self, steps: int) -> None:
        """Bring u and v closer to the leading singular vectors."""
        with full_precision(self.weight):
            for _ in range(steps):
                self.v.copy_(nn.functional.normalize(self.weight.mT @ self.u, dim=0))
                self.u.copy_(nn.functional.normalize(self.weight @ self.v, dim=0))

    @property
    def bounded_weight(self) -> Tensor:
        """W, scaled down where its norm exceeds the bound, [O, I]."""
        with full_precision(self.weight):
            norm = self.u.clone() @ (self.weight @ self.v.clone())  # the next pass changes u and v in place
            return self.weight * (self.bound / norm.clamp_min(self.bound))

    def forward(self, x: Tensor) -> Tensor:
        """[..., I] -> [..., O]."""
        if self.training:
            self.iterate(self.iterations)
        return nn.functional.linear(x, self.bounded_weight, self.bias)


INITIAL_STEPS = 15  # steps of power iteration for a fresh map
