"""Decoupled sparse-GP attention: amortised keys carry the mean, global keys the uncertainty."""

import torch
from torch import Tensor, nn

from sgpa.attention import backend
from sgpa.attention.global_state import GlobalState, global_states, lower
from sgpa.attention.inducing import INDUCING_INITS
from sgpa.attention.kernel import KernelProjections
from sgpa.attention.masks import Mask
from sgpa.attention.moments import FusedMoments, JointMoments, MarginalMoments
from sgpa.attention.precise import count_clamped, in_float64, loses_precision, moments_in_float64
from sgpa.core.arguments import checked
from sgpa.core.errors import InputError, check_fields
from sgpa.core.limits import WIDEST
from sgpa.core.precision import full_precision
from sgpa.core.types import Kl
from sgpa.gp.fused import fused_mean, pack, split
from sgpa.gp.kernels import Kernel
from sgpa.gp.linalg import cholesky
from sgpa.gp.posteriors import (
    cheng_boots_kl_a,
    masked_kl_a,
    orthogonal_kl_a,
    orthogonal_mean,
    prefix_kl_a,
    whiten,
)


class DecoupledSgpa(KernelProjections):
    """What the two decoupled forms share: Z_g, v_g and S_g for every head.

    The inducing locations Z_g [H, M, E] live in the layer's input space. In a layer by itself they are
    projected as tokens are; inside a Transformer they pass through the same deep kernel G_phi as the data
    before the projection W_qk (eq:fhl). For the arguments see `OrthogonalSgpa`.
    """

    stochastic = True
    global_mean = True  # whether v_g is a parameter of the mean

    @checked
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        kernel: Kernel,
        *,
        num_global: int = 32,
        init: str = "small",
        whitened: bool = True,
        joint: bool = False,
        tied: bool = True,
        positions: Tensor | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(embed_dim, num_heads, kernel, tied=tied, positions=positions, dropout=dropout)
        check_fields(
            type(self).__name__,
            [
                ("num_global", num_global, num_global >= 1, "1 or more"),
                ("num_global", num_global, num_global <= WIDEST, f"at most {WIDEST}"),
                ("init", init, init in INDUCING_INITS, ", ".join(INDUCING_INITS)),
            ],
        )
        self.num_global, self.whitened, self.joint = num_global, whitened, joint
        self.controls_own_precision &= not joint and backend.has_operators(kernel, num_global)
        H, M, V = num_heads, num_global, self.head_width
        self.Z_g = nn.Parameter(torch.randn(H, M, embed_dim))
        v_g, raw_s_g = INDUCING_INITS[init].draw(H, M, V)
        self.v_g = nn.Parameter(v_g * self.global_mean, requires_grad=self.global_mean)  # [H, M, V]
        self.raw_s_g = nn.Parameter(raw_s_g)  # see `lower`  [H, V, M, M]
        self.places_g = None if positions is None else nn.Parameter(torch.zeros(H, M, V))  # [H, M, D]

    def moments(
        self, x: Tensor, padding: Tensor | None, state: object = None, mask: Mask | None = None
    ) -> MarginalMoments | FusedMoments:
        """The posterior of one layer and its KL; the state is computed here when none is given."""
        given = None if state is None else self.check_state(state)
        if not self.whitened and x.dtype == torch.float32:  # L^-1 s is large where K_gg is near singular
            return moments_in_float64(self, x, padding, given, mask)
        state = self.global_state() if given is None else given
        chosen = self.choose_backend(x, mask)
        if chosen.fused:
            kv = self.keys_and_values(x)
            self.check_overflow(split(kv)[0])
            if loses_precision(self.kernel, state, split(kv)[0]):
                return moments_in_float64(self, x, padding, given, mask)
            mean, kl_a, A, unexplained = self.fused_mean_and_kl(kv, state)
            return FusedMoments(mean, Kl(state.kl, kl_a.sum(-1)), unexplained, A, state.S)
        q, k_a, v_a = self.projected(x)  # [B, H, T, D]
        if loses_precision(self.kernel, state, *((q,) if q is k_a else (q, k_a))):
            return moments_in_float64(self, x, padding, given, mask)
        return self.posterior(q, k_a, v_a, state, chosen, mask, padding)

    def cross_moments(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | None = None
    ) -> MarginalMoments:
        """The posterior at queries [B, T, E] given keys and values [B, U, E] of other tokens.

        Queries, amortised and global keys are points of one kernel's input space, so that this is the same
        GP, evaluated at other points than its amortised keys. The KL is that of the keys.
        """
        q = self.points(query, self.W_qk if self.W_q is None else self.W_q)  # [B, H, T, D]
        k_a, v_a = self.points(key, self.W_qk), self.heads(value, self.W_v)  # [B, H, U, D]
        state = self.global_state()
        if loses_precision(self.kernel, state, q, k_a):
            exact = (x.double() for x in (query, key, value))
            moments: MarginalMoments = in_float64(self, self.cross_moments, query.dtype, *exact, mask)
            return moments
        return self.posterior(q, k_a, v_a, state, self.choose_backend(query, mask), mask, None)

    def posterior(
        self,
        q: Tensor,
        k_a: Tensor,
        v_a: Tensor,
        state: GlobalState,
        chosen: backend.Backend,
        mask: Mask | None,
        padding: Tensor | None,
    ) -> MarginalMoments:
        """Mean, variance and KL at points q in units of the length-scales; `padding` is the queries'."""
        K_gq = self.kernel.between(state.k_g, q)  # [B, H, M, T]
        A_q = whiten(state.L_inv.to(q.dtype), K_gq)  # L^-1 K_gq  [B, H, M, T]
        if mask is None:
            mean, kl_a = self.mean_and_kl(q, k_a, v_a, K_gq, A_q, state)  # [B, H, T, V], [B, H]
        else:
            mean, kl_t = self.masked_mean_and_kl(q, k_a, v_a, K_gq, A_q, state, mask)  # .., [B, H, T]
            kl_a = mean_over_tokens(kl_t, padding)
        kqq = self.kernel.at(q)  # [B, H, T]
        count_clamped(kqq, A_q)
        variance = chosen.variance(kqq, A_q, state.s_g)  # [B, H, T, V]
        kl = Kl(state.kl, kl_a.sum(-1))
        if not self.joint:
            return MarginalMoments(mean, kl, variance)
        return JointMoments(mean, kl, variance, self.unexplained_factor(q, state), A_q, state.s_g)

    def choose_backend(self, x: Tensor, mask: Mask | None) -> backend.Backend:
        """The backend for tensors like x."""
        sizes = (self.num_global, self.head_width)
        return backend.choose(x, self.controls_own_precision, *sizes, masked=mask is not None)

    def mean_and_kl(
        self, q: Tensor, k_a: Tensor, v_a: Tensor, K_gq: Tensor, A_q: Tensor, state: GlobalState
    ) -> tuple[Tensor, Tensor]:
        """The posterior mean [B, H, T, V] and the amortised KL [B, H]."""
        raise NotImplementedError

    def masked_mean_and_kl(
        self, q: Tensor, k_a: Tensor, v_a: Tensor, K_gq: Tensor, A_q: Tensor, state: GlobalState, mask: Mask
    ) -> tuple[Tensor, Tensor]:
        """The mean [B, H, T, V] and the amortised KL [B, H, T] of the keys that each token sees."""
        C_qa = self.coefficients(q, k_a, A_q, state)  # [B, H, T, U]
        mean = mask.apply(C_qa) @ v_a
        if self.global_mean:
            mean = mean + K_gq.mT @ state.v_g
        if q is k_a:
            C_aa = C_qa
        else:
            A_a = whiten(state.L_inv.to(q.dtype), self.kernel.between(state.k_g, k_a))  # [B, H, M, U]
            C_aa = self.coefficients(k_a, k_a, A_a, state)
        return mean, prefix_kl_a(C_aa, v_a) if mask.causal else masked_kl_a(C_aa, v_a, mask.hidden)

    def coefficients(self, q: Tensor, k_a: Tensor, A_q: Tensor, state: GlobalState) -> Tensor:
        """The matrix C_qa by which v_a enters the mean, [B, H, T, U]."""
        raise NotImplementedError

    def fused_mean_and_kl(self, kv: Tensor, state: GlobalState) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """`mean_and_kl`, A [B, H, M, T] and diag(K_qq - Q_qq) [B, H, T] by the operator of eq:odsvgp."""
        packed = state.packed
        if packed is None:
            packed = pack(state.L_inv.to(kv.dtype), state.k_g, state.w_g, self.kernel.log_variance)
        mean, kl_a, A, unexplained = fused_mean(kv, packed, backend.RBF[type(self.kernel)])
        return mean, kl_a, A, unexplained

    def unexplained_factor(self, q: Tensor, state: GlobalState) -> Tensor:
        """Cholesky factor of K_qq - Q_qq, [B, H, T, T]."""
        points = q.double()
        K_qq = self.kernel.between(points, points)
        A = whiten(state.L_inv, self.kernel.between(state.k_g.double(), points))
        scale = K_qq.diagonal(dim1=-2, dim2=-1)
        return cholesky(K_qq - A.mT @ A, "K_qq - Q_qq", self.name_matrix, scale).to(q.dtype)

    def global_state(self) -> GlobalState:
        """The state of this layer by itself, where G_phi is the identity."""
        with full_precision(self.Z_g):
            return global_states([self], self.Z_g.unsqueeze(0))[0]

    def check_state(self, state: object) -> GlobalState:
        """The state, if it has the shape of this layer's."""
        shape = (self.num_heads, self.num_global, self.head_width)
        if not isinstance(state, GlobalState) or state.k_g.shape != shape:
            raise InputError(f"{self.name}: the state given is not one of this layer's (global keys {shape})")
        return state

    def s_factor(self) -> Tensor:
        """The lower-triangular factor parametrised by `raw_s_g`, [H, V, M, M]."""
        return lower(self.raw_s_g)

    @torch.no_grad()
    @checked
    def init_on_data(self, tokens: Tensor, cells: Tensor | None = None) -> None:
        """Set the inducing locations to tokens drawn from the layer's input space.

        Locations far from all data have K_qg near 0: they neither reduce the variance nor receive a
        gradient. Starting on data avoids that.

        Args:
            tokens: the layer's inputs, [N, E], N at least `num_global`.
            cells: the position of each token in its sequence, [N], for layers with position-aware keys.
        """
        if tokens.ndim != 2 or tokens.shape[-1] != self.embed_dim:
            raise InputError(f"{self.name}: expected tokens [N, {self.embed_dim}], got {list(tokens.shape)}")
        if len(tokens) < self.num_global:
            raise InputError(
                f"{self.name}: {len(tokens)} tokens are too few for {self.num_global} inducing points"
            )
        rows = [torch.randperm(len(tokens))[: self.num_global] for _ in range(self.num_heads)]
        chosen = torch.stack(rows).to(tokens.device)  # [H, M]
        self.Z_g.copy_(tokens[chosen])
        if self.places is not None and self.places_g is not None:
            if cells is None:
                raise InputError(
                    f"{self.name}: cells=None (allowed: a cell for each token, as keys have positions)"
                )
            heads = torch.arange(self.num_heads, device=chosen.device).unsqueeze(-1)
            self.places_g.copy_(self.places[cells[chosen], heads])


class OrthogonalSgpa(DecoupledSgpa):
    """Orthogonally decoupled SGPA, the form the paper uses (eq:odsvgp).

    Args:
        embed_dim: E, the width of tokens.
        num_heads: H, which divides E.
        kernel: base kernel for (num_heads, embed_dim / num_heads).
        num_global: M, global inducing points per head.
        init: initial values of v_g and S_g, one of `INDUCING_INITS`.
        whitened: S_g = L s s' L' with free s (default), or a free factor of S_g itself.
        joint: sample from the full covariance over tokens instead of its diagonal.
        tied: queries and keys share their projection.
        positions: initial positions of tokens, [T, H, E / H], for position-aware keys.
        dropout: probability of dropout on the output.

    Returns:
        `AttentionOutput` with value [B, T, E], or [S, B, T, E] with `samples=S`, for x [B, T, E], and its KL
        in two parts: `kl.g` [] of the global inducing points, `kl.a` [B] of the amortised ones.

    >>> from sgpa.gp.kernels import ArdRbfKernel
    >>> layer = OrthogonalSgpa(8, 2, ArdRbfKernel(2, 4), num_global=3)
    >>> layer(torch.randn(2, 5, 8), samples=10).value.shape
    torch.Size([10, 2, 5, 8])
    """

    def mean_and_kl(
        self, q: Tensor, k_a: Tensor, v_a: Tensor, K_gq: Tensor, A_q: Tensor, state: GlobalState
    ) -> tuple[Tensor, Tensor]:
        """eq:odsvgp."""
        Kqa_va = self.kernel.between(q, k_a) @ v_a  # [B, H, T, V]
        Kaa_va, A_a = Kqa_va, A_q
        if q is not k_a:
            Kaa_va = self.kernel.between(k_a, k_a) @ v_a
            A_a = whiten(state.L_inv.to(q.dtype), self.kernel.between(state.k_g, k_a))  # [B, H, M, T]
        Aa_va = A_a @ v_a  # [B, H, M, V]
        mean = orthogonal_mean(Kqa_va, K_gq.mT @ state.v_g, A_q, Aa_va)
        return mean, orthogonal_kl_a(Kaa_va, v_a, Aa_va)

    def coefficients(self, q: Tensor, k_a: Tensor, A_q: Tensor, state: GlobalState) -> Tensor:
        """K_qa - K_qg K_gg^-1 K_ga."""
        A_a = A_q
        if q is not k_a:
            A_a = whiten(state.L_inv.to(q.dtype), self.kernel.between(state.k_g, k_a))  # [B, H, M, U]
        return self.kernel.between(q, k_a) - A_q.mT @ A_a


class ChengBootsSgpa(DecoupledSgpa):
    """Decoupled SGPA after Cheng & Boots (eq:naivedsvgp): global keys enter the variance only.

    v_g does not appear in its equations and stays fixed at zero. Arguments and result are those of
    `OrthogonalSgpa`.

    >>> from sgpa.gp.kernels import ArdRbfKernel
    >>> ChengBootsSgpa(8, 2, ArdRbfKernel(2, 4), num_global=3)(torch.randn(2, 5, 8)).value.shape
    torch.Size([2, 5, 8])
    """

    global_mean = False

    def mean_and_kl(
        self, q: Tensor, k_a: Tensor, v_a: Tensor, K_gq: Tensor, A_q: Tensor, state: GlobalState
    ) -> tuple[Tensor, Tensor]:
        """eq:naivedsvgp, whose mean is K_qa v_a."""
        del K_gq, A_q, state
        Kqa_va = self.kernel.between(q, k_a) @ v_a  # [B, H, T, V]
        Kaa_va = Kqa_va if q is k_a else self.kernel.between(k_a, k_a) @ v_a
        return Kqa_va, cheng_boots_kl_a(Kaa_va, v_a)

    def coefficients(self, q: Tensor, k_a: Tensor, A_q: Tensor, state: GlobalState) -> Tensor:
        """K_qa."""
        del A_q, state
        return self.kernel.between(q, k_a)

    def fused_mean_and_kl(self, kv: Tensor, state: GlobalState) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """eq:naivedsvgp: adds A' A v_a and ½ |A v_a|², which eq:odsvgp subtracts."""
        mean, kl_a, A, unexplained = super().fused_mean_and_kl(kv, state)
        Av = A @ split(kv)[1]  # [B, H, M, V]
        return mean + A.mT @ Av, kl_a + 0.5 * Av.square().sum((-2, -1)), A, unexplained


def mean_over_tokens(x: Tensor, padding: Tensor | None) -> Tensor:
    """The mean over tokens that are not padding: [B, H, T] -> [B, H]."""
    if padding is None:
        return x.mean(-1)
    real = ~padding.unsqueeze(1)  # [B, 1, T]
    return (x * real).sum(-1) / real.sum(-1)
