"""Kernel attention (eq:kattn): the posterior mean of a sparse GP, without its variance."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from sgpa.attention import backend
from sgpa.attention.base import Attention
from sgpa.attention.masks import Mask
from sgpa.attention.moments import Moments
from sgpa.attention.precise import loses_distances, moments_in_float64
from sgpa.core.arguments import checked
from sgpa.core.counters import KL_BELOW_ZERO, count
from sgpa.core.errors import ConfigError, InputError, NumericalError
from sgpa.core.precision import recording
from sgpa.core.types import Kl
from sgpa.gp.fused import fused_attend, split
from sgpa.gp.kernels import Kernel

ROUNDING = 1e-3  # of a KL, relative to the size of the terms that are subtracted


class KernelProjections(Attention):
    """Attention whose queries and keys are points of one kernel's input space.

    With `tied` (the default, and the paper's choice) both are projected by W_qk, so that q = k_a and K_qa is
    symmetric. Untied, queries and keys are different points of the same space. With `positions` keys are
    position-aware (`positions.grid_positions`); positions are learned.
    """

    @checked
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        kernel: Kernel,
        *,
        tied: bool = True,
        positions: Tensor | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(embed_dim, num_heads, dropout=dropout)
        expected = (num_heads, self.head_width)
        if tuple(kernel.log_lengthscale.shape) != expected:
            raise ConfigError(
                f"{type(self).__name__}: the kernel is for (heads, width) = "
                f"{tuple(kernel.log_lengthscale.shape)}, this layer needs {expected}"
            )
        if positions is not None and tuple(positions.shape[1:]) != expected:
            raise ConfigError(
                f"{type(self).__name__}: positions are for (heads, width) = {tuple(positions.shape[1:])}, "
                f"this layer needs {expected}"
            )
        self.kernel = kernel
        self.W_qk = nn.Linear(embed_dim, embed_dim, bias=False)  # projects the keys
        self.W_q = None if tied else nn.Linear(embed_dim, embed_dim, bias=False)
        self.places = None if positions is None else nn.Parameter(positions.clone())  # [T, H, D]
        self.controls_own_precision = tied and backend.has_operators(kernel, self.head_width)

    @torch.no_grad()
    def scale_initial_variance(self, share: float) -> None:
        """σ_f² times `share`, W_v divided by it: less noise around the same mean K_qa v_a."""
        self.kernel.log_variance.add_(math.log(share))
        self.W_v.weight.div_(share)

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q and k_a in units of the length-scales and v_a, [B, H, T, D] each; q is k_a when tied."""
        if self.W_q is not None:
            return *self.queries_keys(x), self.heads(x, self.W_v)
        k, v = split(self.keys_and_values(x))
        return k, k, v

    def keys_and_values(self, x: Tensor) -> Tensor:
        """k_a in units of the length-scales and v_a, in one tensor: [B, T, 2, H, D]."""
        if not (type(self.W_qk) is type(self.W_v) is nn.Linear):
            both = self.points(x, self.W_qk), self.heads(x, self.W_v)
            return torch.stack([y.transpose(-3, -2) for y in both], -3)
        W = torch.cat([self.scaled(self.W_qk), self.W_v.weight])  # [2 E, E]: one product instead of two
        kv = linear(x, W).unflatten(-1, (2, self.num_heads, self.head_width))
        if self.places is None:
            return kv
        p = self.token_positions(x)
        return kv + torch.stack([p, torch.zeros_like(p)], 1)

    def queries_keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """q and k_a in units of the length-scales, [B, H, T, D] each; the same tensor when tied."""
        k = self.points(x, self.W_qk)
        return (k if self.W_q is None else self.points(x, self.W_q)), k

    def points(self, x: Tensor, W: nn.Linear) -> Tensor:
        """x W / ℓ, plus the positions where keys are position-aware, [B, H, T, D]."""
        if type(W) is not nn.Linear:
            points = self.kernel.scale(self.heads(x, W))
        else:
            points = linear(x, self.scaled(W)).unflatten(-1, (self.num_heads, -1)).transpose(-3, -2)
        return points if self.places is None else points + self.token_positions(x).transpose(0, 1)

    def token_positions(self, x: Tensor) -> Tensor:
        """Positions of the tokens of x [..., T, E], [T, H, D]."""
        assert self.places is not None
        T = x.shape[-2]
        if len(self.places) < T:
            raise InputError(f"{self.name}: {T} tokens, but there are positions for {len(self.places)} only")
        return self.places[:T].to(x.dtype)

    def scaled(self, W: nn.Linear) -> Tensor:
        """W / ℓ, [E, E]: dividing the weights is less work than dividing the points."""
        return W.weight * self.kernel.inverse_lengthscale(W.weight.dtype).flatten().unsqueeze(-1)

    def weights(self, x: Tensor, padding: Tensor | None) -> Tensor:
        """K_qk; its columns at padding are not zero, the values there are."""
        del padding
        return self.kernel.between(*self.queries_keys(x))

    @torch.no_grad()
    def check_kl(self, kl: Kl, x: Tensor, value: Tensor | None = None) -> None:
        """Raise if a part of the KL is negative beyond rounding; `value` where values are of other tokens.

        Its terms are at most ½ Σ_d (Σ_t |v_td| K(x_t, x_t)^½)² for the amortised part, which is computed only
        where there is a negative number.
        """
        if recording(x) or not torch.stack([kl.g.amin(), kl.a.amin()]).lt(0).any():
            return
        count(KL_BELOW_ZERO)
        dtype = self.W_v.weight.dtype
        k, v = (
            self.points(x.to(dtype), self.W_qk),
            self.heads((x if value is None else value).to(dtype), self.W_v),
        )
        largest = (v.abs() * self.kernel.at(k).sqrt().unsqueeze(-1)).sum(-2).square().sum((-2, -1))  # [B]
        worst = float((kl.a + ROUNDING * (1 + 0.5 * largest)).amin())
        if worst < 0 or float(kl.g) < -ROUNDING * (1 + kl.g.new_tensor(self.embed_dim)):
            raise NumericalError(
                f"{self.name}: its KL is negative beyond rounding (global part {float(kl.g):.3g}, smallest "
                f"amortised part {float(kl.a.amin()):.3g}); K_qk is too inexact in this precision, which no "
                "jitter can mend: standardise the inputs, raise the length-scales or use float64"
            )

    def check_overflow(self, k: Tensor) -> None:
        """Raise if K_kk would overflow; the operators do not form it."""
        if not recording(k) and self.kernel.overflows(k):
            raise NumericalError(self.overflow_message())

    def overflow_message(self) -> str:
        """The error message for a Gram matrix that overflowed, or for a learned covariance that did."""
        variance = self.kernel.log_variance.exp().max().item()
        sizes = (
            f"largest kernel variance {variance:.3g}, smallest length-scale "
            f"{self.kernel.log_lengthscale.exp().min().item():.3g}, no jitter involved"
        )
        if self.kernel.bounded and math.isfinite(variance):
            return (
                f"{self.name}: the attention output, its variance or its KL is not finite although K_qk is "
                f"({sizes}); lower the learning rate"
            )
        return (
            f"{self.name}: the attention output or its KL is not finite because K_qk overflowed ({sizes}); "
            "lower the learning rate, raise the length-scales or use ArdRbfKernel, which is bounded"
        )


class KernelAttention(KernelProjections):
    """K_qk v for each head: no softmax, no normalisation over keys.

    Args:
        embed_dim: E, the width of tokens.
        num_heads: H, which divides E.
        kernel: base kernel for (num_heads, embed_dim / num_heads).
        tied: queries and keys share their projection.
        positions: initial positions of tokens, [T, H, E / H], for position-aware keys.
        dropout: probability of dropout on the output.

    Returns:
        `AttentionOutput` with value [B, T, E] for x [B, T, E], and a KL of zero.

    >>> import torch
    >>> from sgpa.gp.kernels import ArdRbfKernel
    >>> KernelAttention(8, 2, ArdRbfKernel(2, 4))(torch.randn(3, 5, 8)).value.shape
    torch.Size([3, 5, 8])
    """

    def moments(
        self, x: Tensor, padding: Tensor | None, state: object = None, mask: Mask | None = None
    ) -> Moments:
        """K_qk v, without variance; hidden keys have weight zero."""
        del state
        if backend.choose(x, self.controls_own_precision, masked=mask is not None).fused:
            kv, rbf = self.keys_and_values(x), backend.RBF[type(self.kernel)]
            self.check_overflow(split(kv)[0])
            if loses_distances(split(kv)[0]):
                return moments_in_float64(self, x, padding, None, mask)
            return Moments(fused_attend(kv, self.kernel.log_variance, rbf), Kl.zero(x))
        q, k, v = self.projected(x)  # [B, H, T, D]
        if loses_distances(q, k):
            return moments_in_float64(self, x, padding, None, mask)
        K_qk = self.kernel.between(q, k)  # [B, H, T, T]
        return Moments((K_qk if mask is None else mask.apply(K_qk)) @ v, Kl.zero(x))
