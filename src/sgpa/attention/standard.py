"""Standard SGPA (eq:fpost): the amortised keys are the inducing points, at O(T^3) per sequence."""

import torch
from torch import Tensor, nn

from sgpa.attention.kernel import KernelProjections
from sgpa.attention.masks import Mask
from sgpa.attention.moments import JointMoments, MarginalMoments
from sgpa.attention.precise import loses_points, moments_in_float64
from sgpa.core.arguments import checked
from sgpa.core.errors import InputError, check_fields
from sgpa.core.limits import WIDEST
from sgpa.core.types import Kl
from sgpa.gp.kernels import Kernel
from sgpa.gp.linalg import cholesky, triangular_inverse
from sgpa.gp.posteriors import standard_kl, standard_posterior, whiten


class StandardSgpa(KernelProjections):
    """SGPA whose inducing points are the keys of each sequence, with a covariance by projection (eq:fpost).

    Row t of the Cholesky factor is a linear map of token t, the logarithm of its diagonal another; the
    covariance is shared by the value dimensions of a head. The map has one column per position, hence
    `max_tokens`. With tied projections the covariance is S itself, since K_qk K_kk^-1 = I. There is no
    global part, so the KL is all amortised.

    Args:
        embed_dim: E, the width of tokens.
        num_heads: H, which divides E.
        kernel: base kernel for (num_heads, embed_dim / num_heads).
        max_tokens: the most tokens of a sequence.
        whitened: S = L s s' L' with free s (default), or a free factor of S itself.
        joint: sample from the full covariance over tokens instead of its diagonal.
        tied: queries and keys share their projection.
        positions: initial positions of tokens, [T, H, E / H], for position-aware keys.
        dropout: probability of dropout on the output.

    Returns:
        `AttentionOutput` with value [B, T, E], or [S, B, T, E] with `samples=S`, for x [B, T, E], and its KL.

    >>> from sgpa.gp.kernels import ArdRbfKernel
    >>> StandardSgpa(8, 2, ArdRbfKernel(2, 4), max_tokens=5)(torch.randn(2, 5, 8)).value.shape
    torch.Size([2, 5, 8])
    """

    stochastic = True

    @checked
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        kernel: Kernel,
        *,
        max_tokens: int,
        whitened: bool = True,
        joint: bool = False,
        tied: bool = True,
        positions: Tensor | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(embed_dim, num_heads, kernel, tied=tied, positions=positions, dropout=dropout)
        checks = [
            ("max_tokens", max_tokens, max_tokens >= 1, "1 or more"),
            ("max_tokens", max_tokens, max_tokens <= WIDEST, f"at most {WIDEST}"),
        ]
        check_fields(type(self).__name__, checks)
        self.max_tokens, self.whitened, self.joint = max_tokens, whitened, joint
        self.W_s = nn.Linear(embed_dim, num_heads * max_tokens)
        self.W_log_s = nn.Linear(embed_dim, num_heads)
        self.controls_own_precision = (
            False  # its projections, the input of the factorisation, are plain products
        )

    def s_factor(self, x: Tensor) -> Tensor:
        """Lower-triangular factor amortised by projection, [B, H, 1, T, T]."""
        T = x.shape[1]
        if self.max_tokens < T:
            raise InputError(
                f"{self.name}: {T} tokens, but its covariance is for max_tokens={self.max_tokens}"
            )
        rows = self.W_s(x).unflatten(-1, (self.num_heads, self.max_tokens))[..., :T]  # [B, T, H, T]
        diagonal = self.W_log_s(x).exp().mT  # [B, H, T]
        return (rows.transpose(1, 2).tril(-1) + torch.diag_embed(diagonal)).unsqueeze(2)

    def moments(
        self, x: Tensor, padding: Tensor | None, state: object = None, mask: Mask | None = None
    ) -> MarginalMoments:
        """eq:fpost and its KL in float64; padded keys become points uncorrelated with all others."""
        del state
        if mask is not None:  # every token would need a factor of its own keys' Gram matrix
            raise InputError(
                f"{self.name}: attn_mask or is_causal in StandardSgpa (allowed: none; the decoupled forms "
                "take masks)"
            )
        q, k = self.queries_keys(x)  # [B, H, T, D]
        if loses_points(q, k):
            return moments_in_float64(self, x, padding, None)
        q, k = (k.double(),) * 2 if q is k else (q.double(), k.double())
        v = self.heads(x, self.W_v).double()  # [B, H, T, V]
        K_qk, K_kk = self.kernel.between(q, k), self.kernel.between(k, k)  # [B, H, T, T]
        K_kq, s = K_qk.mT, self.s_factor(x).double()
        if padding is not None:
            pad = padding[:, None, :, None]  # [B, 1, T, 1]
            eye = torch.eye(x.shape[1], dtype=K_kk.dtype, device=x.device)
            K_kq = K_kq.masked_fill(pad, 0.0)
            K_kk = torch.where(pad | pad.mT, eye, K_kk)
            s = torch.where((pad | pad.mT).unsqueeze(2), eye, s)
        L = cholesky(K_kk, "K_kk", self.name_matrix)
        L_inv = triangular_inverse(L)
        if not self.whitened:
            s = L_inv.unsqueeze(-3) @ s
        A, kqq = whiten(L_inv, K_kq), self.kernel.at(q)  # [B, H, T, T], [B, H, T]
        posterior = standard_posterior(kqq, K_qk, A, v, s)
        kl_a = standard_kl(L @ (L.mT @ v), v, s).sum(-1)  # [B]
        mean, variance, kl_a = (y.to(x.dtype) for y in (posterior.mean, posterior.variance, kl_a))
        kl = Kl(x.new_zeros(()), kl_a)
        if not self.joint:
            return MarginalMoments(mean, kl, variance)
        L_c = cholesky(self.kernel.between(q, q) - A.mT @ A, "K_qq - Q_qq", self.name_matrix, kqq)
        return JointMoments(mean, kl, variance, L_c.to(x.dtype), A.to(x.dtype), s.to(x.dtype))
