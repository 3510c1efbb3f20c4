"""Standard SGPA (eq:fpost): the amortised keys are the inducing points, at O(T^3) per sequence."""

import torch
from torch import Tensor, nn

from sgpa.attention.base import Moments
from sgpa.attention.sampled import SampledAttention
from sgpa.core.errors import InputError, check_fields
from sgpa.core.types import Kl
from sgpa.gp.kernels import Kernel
from sgpa.gp.linalg import cholesky, triangular_inverse
from sgpa.gp.posteriors import standard_kl, standard_posterior, whiten


class StandardSgpa(SampledAttention):
    """Every sequence brings its own inducing points and, by projection, their covariance.

    Row t of the Cholesky factor is a linear map of token t, the logarithm of its diagonal another; the
    covariance is shared by the value dimensions of a head. The map has one column per position, hence
    `max_tokens`. With tied projections the covariance is S itself, since K_qk K_kk^-1 = I. There is no
    global part, so the KL is all amortised.

    >>> from sgpa.gp.kernels import ArdRbfKernel
    >>> StandardSgpa(8, 2, ArdRbfKernel(2, 4), max_tokens=5)(torch.randn(2, 5, 8)).value.shape
    torch.Size([2, 5, 8])
    """

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
        places: Tensor | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(embed_dim, num_heads, kernel, tied=tied, places=places, dropout=dropout)
        check_fields(type(self).__name__, [("max_tokens", max_tokens, max_tokens >= 1, "1 or more")])
        self.max_tokens, self.whitened, self.joint = max_tokens, whitened, joint
        self.W_s = nn.Linear(embed_dim, num_heads * max_tokens)
        self.W_log_s = nn.Linear(embed_dim, num_heads)

    @property
    def controls_own_precision(self) -> bool:
        """There is no fast path; all is in float64."""
        return False

    def s_factor(self, x: Tensor) -> Tensor:
        """Lower-triangular factor amortised by projection, [B, H, 1, T, T]."""
        T = x.shape[1]
        if self.max_tokens < T:
            raise InputError(
                f"{self.name}: {T} tokens, but its covariance is made for max_tokens={self.max_tokens}"
            )
        rows = self.W_s(x).unflatten(-1, (self.num_heads, self.max_tokens))[..., :T]  # [B, T, H, T]
        diagonal = self.W_log_s(x).exp().mT  # [B, H, T]
        return (rows.transpose(1, 2).tril(-1) + torch.diag_embed(diagonal)).unsqueeze(2)

    def moments(self, x: Tensor, padding: Tensor | None, state: object = None) -> Moments:
        """Posterior and KL in float64; padded keys become points that nothing correlates with."""
        del state
        q, k = self.queries_keys(x)  # [B, H, T, D]
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
        L = cholesky(K_kk, "K_kk", self.place_in_batch)
        L_inv = triangular_inverse(L)
        if not self.whitened:
            s = L_inv.unsqueeze(-3) @ s
        A = whiten(L_inv, K_kq)  # [B, H, T, T]
        kqq = self.kernel.at(q)  # [B, H, T]
        posterior = standard_posterior(kqq, K_qk, A, v, s)
        kl = standard_kl(L @ (L.mT @ v), v, s).sum(-1)  # [B]
        L_c = None
        if self.joint:
            K_qq = self.kernel.between(q, q)
            L_c = cholesky(K_qq - A.mT @ A, "K_qq - Q_qq", self.place_in_batch, kqq).to(x.dtype)
        return Moments(
            posterior.mean.to(x.dtype),
            Kl(x.new_zeros(()), kl.to(x.dtype)),
            posterior.variance.to(x.dtype),
            L_c,
            A.to(x.dtype),
            s.to(x.dtype),
        )
