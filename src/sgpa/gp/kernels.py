"""Base kernels of the deep kernel, one set of parameters per head, all in log space."""

import math
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from sgpa.core.arguments import checked
from sgpa.core.errors import check_fields
from sgpa.core.limits import WIDEST, scale_check


class Kernel(nn.Module):
    """A positive definite function of two points of one head.

    `forward` takes x [..., H, T, D] and y [..., H, U, D] and returns K_xy [..., H, T, U];
    `diagonal` returns the T values K(x_t, x_t) [..., H, T] without forming the matrix. `between` and `at` are
    the same for points in units of the length-scales. A subclass implements `exponent` and `at`.
    """

    # preset -> (log σ_f², mean of log ℓ, its standard deviation); ℓ is the σ_j of the paper
    presets: ClassVar[dict[str, tuple[float, float, float]]]
    bounded: ClassVar = False  # whether K(x, y) is at most σ_f²

    @checked
    def __init__(self, num_heads: int, head_width: int, *, variance: float = 1.0, lengthscale: float = 1.0):
        super().__init__()
        check_fields(
            type(self).__name__,
            [
                ("num_heads", num_heads, num_heads >= 1, "1 or more"),
                ("head_width", head_width, head_width >= 1, "1 or more"),
                ("num_heads", num_heads, num_heads <= WIDEST, f"at most {WIDEST}"),
                ("head_width", head_width, head_width <= WIDEST, f"at most {WIDEST}"),
                scale_check("variance", variance),
                scale_check("lengthscale", lengthscale),
            ],
        )
        self.log_variance = nn.Parameter(torch.full((num_heads,), math.log(variance)))  # log σ_f²  [H]
        self.log_lengthscale = nn.Parameter(
            torch.full((num_heads, head_width), math.log(lengthscale))
        )  # log ℓ  [H, D]

    @classmethod
    @checked
    def preset(cls, name: str, num_heads: int, head_width: int) -> Self:
        """A kernel with named initial values.

        Args:
            name: `paper` for σ_f² = ℓ = 1, as the paper states no values; `authors` for the values in the
                authors' public code; `mixing` for ℓ² = D, so that tokens of unit scale attend to each other
                at first.
            num_heads: H.
            head_width: D.
        """
        check_fields(cls.__name__, [("preset", name, name in cls.presets, ", ".join(cls.presets))])
        log_variance, log_mean, log_std = cls.presets[name]
        kernel = cls(num_heads, head_width)
        with torch.no_grad():
            kernel.log_variance.fill_(log_variance)
            kernel.log_lengthscale.normal_(log_mean, log_std)
            if name == "mixing":
                kernel.log_lengthscale.add_(0.5 * math.log(head_width))
        return kernel

    def inverse_lengthscale(self, dtype: torch.dtype) -> Tensor:
        """1 / ℓ, [H, D]."""
        return (-self.log_lengthscale.to(dtype)).exp()

    def scale(self, x: Tensor) -> Tensor:
        """x / ℓ in the precision of x."""
        return x * self.inverse_lengthscale(x.dtype).unsqueeze(-2)  # [..., H, T, D]

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """K_xy."""
        scaled = self.scale(x)
        return self.between(scaled, scaled if x is y else self.scale(y))

    def between(self, x: Tensor, y: Tensor) -> Tensor:
        """K_xy of points in units of the length-scales."""
        return (self.exponent(x, y) + self.log_variance.to(x.dtype).view(-1, 1, 1)).exp()

    def diagonal(self, x: Tensor) -> Tensor:
        """K(x_t, x_t), [..., H, T]."""
        return self.at(self.scale(x))

    @staticmethod
    def exponent(x: Tensor, y: Tensor) -> Tensor:
        """log(K_xy / σ_f²) of points in units of the length-scales."""
        raise NotImplementedError

    def at(self, x: Tensor) -> Tensor:
        """K(x_t, x_t) of points in units of the length-scales."""
        raise NotImplementedError

    def overflows(self, x: Tensor) -> bool:
        """Whether K, or its gradient, can overflow between these points in units of the length-scales."""
        del x
        return False

    def extra_repr(self) -> str:
        """Heads and width, for printing."""
        return f"num_heads={len(self.log_variance)}, head_width={self.log_lengthscale.shape[-1]}"


class ArdRbfKernel(Kernel):
    """The ARD-RBF kernel σ_f² exp(-½ Σ_j (x_j - y_j)² / ℓ_j²), bounded by σ_f².

    Args:
        num_heads: H; every head has parameters of its own.
        head_width: D, the dimension of points.
        variance: initial σ_f².
        lengthscale: initial ℓ_j.

    Returns:
        K_xy [..., H, T, U] for x [..., H, T, D] and y [..., H, U, D].

    >>> kernel = ArdRbfKernel(num_heads=2, head_width=4)
    >>> kernel(torch.randn(3, 2, 5, 4), torch.randn(3, 2, 6, 4)).shape
    torch.Size([3, 2, 5, 6])
    """

    presets: ClassVar = {"paper": (0.0, 0.0, 0.0), "authors": (0.0, 0.0, 1.0), "mixing": (0.0, 0.0, 0.0)}
    bounded = True

    @staticmethod
    def exponent(x: Tensor, y: Tensor) -> Tensor:
        """-½ |x - y|². The square is expanded, so its rounding error is about ε |x|².

        Where x and y are one tensor the distance of a point to itself is exactly zero.
        """
        half_x, half_y = (0.5 * z.square().sum(-1, keepdim=True) for z in (x, y))
        exponent = (x @ y.mT - half_x - half_y.mT).clamp_max(0)  # [..., H, T, U]
        if x is not y:
            return exponent
        return exponent.masked_fill(torch.eye(x.shape[-2], dtype=torch.bool, device=x.device), 0.0)

    def at(self, x: Tensor) -> Tensor:
        """σ_f², for any x."""
        return self.log_variance.to(x.dtype).exp().unsqueeze(-1).expand(x.shape[:-1])


LARGEST = math.log(torch.finfo(torch.float32).max) - 16  # exponent with finite gradients of all parameters


def bounded_exp(exponent: Tensor) -> Tensor:
    """exp, infinite above `LARGEST`; a layer reports an infinite result as an error."""
    return exponent.masked_fill(exponent > LARGEST, math.inf).exp()


class ExponentialKernel(Kernel):
    """The exponential kernel σ_f² exp(Σ_j x_j y_j / ℓ_j²): softmax attention with q = k, not normalised.

    Args:
        num_heads: H; every head has parameters of its own.
        head_width: D, the dimension of points.
        variance: initial σ_f².
        lengthscale: initial ℓ_j.

    Returns:
        K_xy [..., H, T, U] for x [..., H, T, D] and y [..., H, U, D]. Entries above exp(`LARGEST`) are
        infinite: a finite number there would have an infinite gradient.

    >>> kernel = ExponentialKernel(num_heads=2, head_width=4)
    >>> kernel(torch.randn(3, 2, 5, 4), torch.randn(3, 2, 6, 4)).shape
    torch.Size([3, 2, 5, 6])
    """

    presets: ClassVar = {"paper": (0.0, 0.0, 0.0), "authors": (-4.0, 4.0, 1.0), "mixing": (0.0, 0.0, 0.0)}

    @staticmethod
    def exponent(x: Tensor, y: Tensor) -> Tensor:
        """x·y."""
        return x @ y.mT

    def between(self, x: Tensor, y: Tensor) -> Tensor:
        """K_xy of points in units of the length-scales."""
        return bounded_exp(self.exponent(x, y) + self.log_variance.to(x.dtype).view(-1, 1, 1))

    def at(self, x: Tensor) -> Tensor:
        """σ_f² exp(|x|²): it grows with |x|, unlike the RBF kernel's."""
        return bounded_exp(self._exponent_at(x))

    @torch.no_grad()
    def overflows(self, x: Tensor) -> bool:
        """By the largest diagonal entry, as x·y is at most the larger one of |x|² and |y|²."""
        return bool(self._exponent_at(x).amax() > LARGEST)

    def _exponent_at(self, x: Tensor) -> Tensor:
        """log K(x_t, x_t), [..., H, T]."""
        return x.square().sum(-1) + self.log_variance.to(x.dtype).unsqueeze(-1)


KERNELS: dict[str, type[Kernel]] = {"ard-rbf": ArdRbfKernel, "exponential": ExponentialKernel}
