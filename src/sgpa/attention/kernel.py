"""Kernel attention (eq:kattn): the posterior mean of a sparse GP, without its variance."""

from torch import Tensor, nn

from sgpa.attention.base import Attention, Moments
from sgpa.errors import ConfigError
from sgpa.kernels import Kernel
from sgpa.types import Kl


class KernelProjections(Attention):
    """Attention whose queries and keys are points of one kernel's input space.

    `tied` (the default, and the paper's choice) projects both with W_qk, so that q = k_a and K_qa is
    symmetric. Untied, queries and keys are different points of the same space.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, kernel: Kernel, *, tied: bool = True, dropout: float = 0.0
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

    def queries_keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """q and k_a, [B, H, T, D] each; the same tensor when tied."""
        k = self.heads(x, self.W_qk)
        return (k if self.W_q is None else self.heads(x, self.W_q)), k

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
    >>> from sgpa.kernels import ArdRbfKernel
    >>> KernelAttention(8, 2, ArdRbfKernel(2, 4))(torch.randn(3, 5, 8)).value.shape
    torch.Size([3, 5, 8])
    """

    def moments(self, x: Tensor, padding: Tensor | None, state: object = None) -> Moments:
        """The Gram matrix and the attended values."""
        del padding, state
        q, k = self.queries_keys(x)
        K = self.kernel(q, k)  # [B, H, T, T]
        return Moments(K, K @ self.heads(x, self.W_v), Kl.zero(x))
