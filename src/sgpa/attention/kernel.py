"""Kernel attention (eq:kattn): the posterior mean of a sparse GP, without its variance."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from sgpa.attention.base import Attention, Moments
from sgpa.core.errors import ConfigError, InputError
from sgpa.core.types import Kl
from sgpa.gp.fused import TRITON, WIDTH, apart, fused_attend
from sgpa.gp.kernels import ArdRbfKernel, ExponentialKernel, Kernel

RBF = {ArdRbfKernel: True, ExponentialKernel: False}  # what the fast paths call the kernels they know


class KernelProjections(Attention):
    """Attention whose queries and keys are points of one kernel's input space.

    `tied` (the default, and the paper's choice) projects both with W_qk, so that q = k_a and K_qa is
    symmetric. Untied, queries and keys are different points of the same space.

    With `places` (from `places.places`) tokens carry where they are, and learn it.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        kernel: Kernel,
        *,
        tied: bool = True,
        places: Tensor | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(embed_dim, num_heads, dropout=dropout)
        expected = (num_heads, self.head_width)
        if tuple(kernel.log_lengthscale.shape) != expected:
            raise ConfigError(
                f"{type(self).__name__}: the kernel is for (heads, width) = "
                f"{tuple(kernel.log_lengthscale.shape)}, this layer needs {expected}"
            )
        self.kernel = kernel
        self.W_qk = nn.Linear(embed_dim, embed_dim, bias=False)  # projects the keys
        self.W_q = None if tied else nn.Linear(embed_dim, embed_dim, bias=False)
        if places is not None and tuple(places.shape[1:]) != expected:
            raise ConfigError(
                f"{type(self).__name__}: places are for (heads, width) = {tuple(places.shape[1:])}, "
                f"this layer needs {expected}"
            )
        self.places = None if places is None else nn.Parameter(places.clone())  # [T, H, D]

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q and k_a in units of the length-scales and v_a, [B, H, T, D] each; q is k_a when tied."""
        if self.W_q is not None:
            return *self.queries_keys(x), self.heads(x, self.W_v)
        k, v = apart(self.beside(x))
        return k, k, v

    def beside(self, x: Tensor) -> Tensor:
        """k_a in units of the length-scales and v_a, side by side: [B, T, 2, H, D]."""
        if not (type(self.W_qk) is type(self.W_v) is nn.Linear):
            both = self.points(x, self.W_qk), self.heads(x, self.W_v)
            return torch.stack([y.transpose(-3, -2) for y in both], -3)
        W = torch.cat([self.scaled(self.W_qk), self.W_v.weight])  # [2 E, E]: one product instead of two
        both = linear(x, W).unflatten(-1, (2, self.num_heads, self.head_width))
        if self.places is None:
            return both
        p = self.places_of(x)
        return both + torch.stack([p, torch.zeros_like(p)], 1)

    def queries_keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """q and k_a in units of the length-scales, [B, H, T, D] each; the same tensor when tied."""
        k = self.points(x, self.W_qk)
        return (k if self.W_q is None else self.points(x, self.W_q)), k

    def points(self, x: Tensor, W: nn.Linear) -> Tensor:
        """x W / ℓ, cut into heads, and where there are places moved by them."""
        if type(W) is not nn.Linear:
            found = self.kernel.scale(self.heads(x, W))
        else:
            found = linear(x, self.scaled(W)).unflatten(-1, (self.num_heads, -1)).transpose(-3, -2)
        return found if self.places is None else found + self.places_of(x).transpose(0, 1)

    def places_of(self, x: Tensor) -> Tensor:
        """Places of the tokens of x [..., T, E], [T, H, D]."""
        assert self.places is not None
        T = x.shape[-2]
        if len(self.places) < T:
            raise InputError(f"{self.name}: {T} tokens, but there are places for {len(self.places)} only")
        return self.places[:T].to(x.dtype)

    def scaled(self, W: nn.Linear) -> Tensor:
        """W / ℓ, [E, E]: dividing the weights is less work than dividing the points."""
        return W.weight * self.kernel.inverse_lengthscale(W.weight.dtype).flatten().unsqueeze(-1)

    @property
    def controls_own_precision(self) -> bool:
        """Whether this layer has a fast path, which takes care of its precision."""
        return TRITON and self.W_q is None and type(self.kernel) in RBF and self.head_width <= WIDTH

    def fuses(self, x: Tensor) -> bool:
        """Whether the fast path takes these tokens [B, T, E]: in float32 on a GPU."""
        exact = x.dtype == self.W_v.weight.dtype == torch.float32 and not torch.is_autocast_enabled("cuda")
        return self.controls_own_precision and x.is_cuda and x.ndim == 3 and exact

    def weights(self, x: Tensor, padding: Tensor | None) -> Tensor:
        """K_qk, with columns at padding that the values, zero there, never see."""
        del padding
        return self.kernel.between(*self.queries_keys(x))

    def overflow_message(self) -> str:
        """Name the matrix: only the Gram matrix can overflow."""
        return (
            f"{self.name}: the attention output or its KL is not finite because K_qk overflowed "
            f"(largest kernel variance {self.kernel.log_variance.exp().max().item():.3g}, smallest "
            f"length-scale {self.kernel.log_lengthscale.exp().min().item():.3g}, no jitter involved); "
            "lower the learning rate, raise the length-scales or use ArdRbfKernel, which is bounded"
        )


class KernelAttention(KernelProjections):
    """K_qk v for each head: no softmax, no normalisation over keys.

    >>> import torch
    >>> from sgpa.gp.kernels import ArdRbfKernel
    >>> KernelAttention(8, 2, ArdRbfKernel(2, 4))(torch.randn(3, 5, 8)).value.shape
    torch.Size([3, 5, 8])
    """

    def moments(self, x: Tensor, padding: Tensor | None, state: object = None) -> Moments:
        """The attended values."""
        del padding, state
        if self.fuses(x):
            mean = fused_attend(self.beside(x), self.kernel.log_variance, RBF[type(self.kernel)])
            return Moments(mean, Kl.zero(x))
        q, k, v = self.projected(x)  # [B, H, T, D]
        return Moments(self.kernel.between(q, k) @ v, Kl.zero(x))
