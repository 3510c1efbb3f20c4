"""Decoupled sparse-GP attention: amortised keys carry the mean, global keys the uncertainty."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sgpa.attention.base import Moments
from sgpa.attention.global_state import GlobalState, global_states, lower
from sgpa.attention.kernel import RBF
from sgpa.attention.sampled import SampledAttention
from sgpa.core import noise
from sgpa.core.errors import InputError, check_fields
from sgpa.core.precision import full_precision
from sgpa.core.types import Kl
from sgpa.gp.fused import WIDTH, apart, fused_mean, fused_sample, fused_variance, pack
from sgpa.gp.kernels import ArdRbfKernel, Kernel
from sgpa.gp.linalg import cholesky
from sgpa.gp.posteriors import (
    cheng_boots_kl_a,
    marginal_variance,
    orthogonal_kl_a,
    orthogonal_mean,
    sample_paths,
    whiten,
)


@dataclass(frozen=True)
class InducingInit:
    """Initial values of the variational parameters of the global inducing points."""

    v_std: float  # of every entry of v_g
    s_std: float  # of every entry of the Cholesky factor below its diagonal
    log_s_mean: float  # of the logarithm of its diagonal
    log_s_std: float


PAIRS = 32  # sines and cosines of a random path

INDUCING_INITS = {
    "paper": InducingInit(1.0, 1.0, 0.0, 1.0),  # every free number a standard normal
    "prior": InducingInit(0.0, 0.0, 0.0, 0.0),  # q(u_g) = p(u_g): no divergence to begin with
    "small": InducingInit(0.01, 0.0, math.log(0.1), 0.0),  # nearly deterministic at the global keys
}


@dataclass(frozen=True)
class Terms:
    """What the equations of a decoupled layer are made of."""

    q: Tensor  # [B, H, T, D]
    kqq: Tensor  # diag K_qq                    [B, H, T]
    Kqa_va: Tensor  # K_qa v_a                  [B, H, T, V]
    Kaa_va: Tensor  # K_aa v_a                  [B, H, T, V]
    K_gq: Tensor  # [B, H, M, T]
    A_q: Tensor  # L^-1 K_gq                    [B, H, M, T]
    A_a: Tensor  # L^-1 K_ga                    [B, H, M, T]
    v_a: Tensor  # [B, H, T, V]


class DecoupledSgpa(SampledAttention):
    """Common parameters of the two decoupled forms: Z_g, v_g and S_g for every head.

    The inducing locations Z_g [H, M, E] live in the layer's input space. On its own the layer sees
    them as it sees tokens; inside a Transformer they pass through the same deep kernel G_phi as the
    data before the projection W_qk (eq:fhl).

    Args:
        embed_dim, num_heads, dropout: as in `nn.MultiheadAttention` (dropout acts on the output).
        kernel: base kernel for (num_heads, embed_dim / num_heads).
        num_global: M, global inducing points per head.
        init: one of `INDUCING_INITS`.
        whitened: S_g = L s s' L' with free s (default), or a free factor of S_g itself.
        joint: sample from the full covariance over tokens instead of its diagonal.
        paths: sample functions of the tokens by random features (ARD-RBF kernel): as `joint`, but cheap.
        tied: queries and keys share their projection.
        places: where tokens are (`places.places`); inducing points then have places of their own.
    """

    global_mean = True  # whether v_g is a parameter of the mean

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
        paths: bool = False,
        tied: bool = True,
        places: Tensor | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(embed_dim, num_heads, kernel, tied=tied, places=places, dropout=dropout)
        check_fields(
            type(self).__name__,
            [
                ("num_global", num_global, num_global >= 1, "1 or more"),
                ("init", init, init in INDUCING_INITS, ", ".join(INDUCING_INITS)),
                ("paths", paths, not (paths and joint), "false where joint is true"),
                ("paths", paths, not paths or type(kernel) is ArdRbfKernel, "false for this kernel"),
            ],
        )
        self.num_global, self.whitened = num_global, whitened
        self.joint, self.paths = joint, paths
        H, M, V = num_heads, num_global, self.head_width
        start = INDUCING_INITS[init]
        self.Z_g = nn.Parameter(torch.randn(H, M, embed_dim))
        self.v_g = nn.Parameter(
            self.global_mean * start.v_std * torch.randn(H, M, V), requires_grad=self.global_mean
        )
        self.raw_s_g = nn.Parameter(
            (start.s_std * torch.randn(H, V, M, M)).tril(-1)
            + torch.diag_embed(start.log_s_mean + start.log_s_std * torch.randn(H, V, M))
        )  # strictly lower triangle and, on the diagonal, logarithms  [H, V, M, M]
        self.places_g = None if places is None else nn.Parameter(torch.zeros(H, M, V))  # [H, M, D]

    @torch.no_grad()
    def init_on_data(self, tokens: Tensor, cells: Tensor | None = None) -> None:
        """Put the inducing locations on tokens [N, E] drawn from the layer's input space.

        Locations far from all data have K_qg near 0: they neither reduce the variance nor receive a
        gradient. Starting on data avoids that. `cells` [N] says which token of its sequence each is,
        for layers with places.
        """
        if tokens.ndim != 2 or tokens.shape[-1] != self.embed_dim:
            raise InputError(f"{self.name}: expected tokens [N, {self.embed_dim}], got {list(tokens.shape)}")
        if len(tokens) < self.num_global:
            raise InputError(
                f"{self.name}: {len(tokens)} tokens are too few to place {self.num_global} inducing points"
            )
        rows = [torch.randperm(len(tokens))[: self.num_global] for _ in range(self.num_heads)]
        chosen = torch.stack(rows).to(tokens.device)  # [H, M]
        self.Z_g.copy_(tokens[chosen])
        if self.places is not None and self.places_g is not None:
            if cells is None:
                raise InputError(f"{self.name}: the cells of the tokens are needed, as it has places")
            heads = torch.arange(self.num_heads, device=chosen.device).unsqueeze(-1)
            self.places_g.copy_(self.places[cells[chosen], heads])

    def s_factor(self) -> Tensor:
        """The lower-triangular factor that `raw_s_g` stands for, [H, V, M, M]."""
        return lower(self.raw_s_g)

    def global_state(self) -> GlobalState:
        """The state of this layer on its own, where G_phi is the identity."""
        with full_precision(self.Z_g):
            return global_states([self], self.Z_g.unsqueeze(0))[0]

    def global_projection(self, x: Tensor, state: GlobalState) -> tuple[Tensor, Tensor]:
        """K_gx and A_x = L^-1 K_gx for points x [B, H, T, D], [B, H, M, T] both."""
        K_gx = self.kernel.between(state.k_g, x)
        return K_gx, whiten(state.L_inv.to(x.dtype), K_gx)

    def unexplained_factor(self, q: Tensor, state: GlobalState) -> Tensor:
        """Cholesky factor of K_qq - Q_qq, [B, H, T, T]."""
        q64 = q.double()
        K_qq = self.kernel.between(q64, q64)
        A = whiten(state.L_inv, self.kernel.between(state.k_g.double(), q64))
        scale = K_qq.diagonal(dim1=-2, dim2=-1)
        return cholesky(K_qq - A.mT @ A, "K_qq - Q_qq", self.place_in_batch, scale).to(q.dtype)

    def moments(self, x: Tensor, padding: Tensor | None, state: object = None) -> Moments:
        """Posterior and KL of one layer; the state is computed here when none is given."""
        del padding  # x is zero there, hence v_a is
        state = self.own(state)
        if self.fuses(x):
            return self.fused(x, state)
        terms = self.terms(*self.projected(x), state)
        mean, kl_a = self.condition(terms, state)
        variance = marginal_variance(terms.kqq, terms.A_q, state.s_g)
        L_c = self.unexplained_factor(terms.q, state) if self.joint else None
        return Moments(mean, Kl(state.kl, kl_a.sum(-1)), variance, L_c, terms.A_q, state.s_g)

    def own(self, state: object) -> GlobalState:
        """The state given, if it is one of this layer's, or the layer's own where none is given."""
        if state is None:
            return self.global_state()
        shape = (self.num_heads, self.num_global, self.head_width)
        if not isinstance(state, GlobalState) or state.k_g.shape != shape:
            raise InputError(f"{self.name}: the state given is not one of this layer's (global keys {shape})")
        return state

    @property
    def controls_own_precision(self) -> bool:
        """Not for joint sampling, nor for many inducing points."""
        return not self.joint and self.num_global <= WIDTH and super().controls_own_precision

    def fused(self, x: Tensor, state: GlobalState) -> Moments:
        """The same moments without a Gram matrix, where `fuses` says so."""
        mean, kl, A, left = self.projections(self.beside(x), state)
        return Moments(mean, Kl(state.kl, kl.sum(-1)), fused_variance(left, A, state.S))

    def sampled(
        self, x: Tensor, padding: Tensor | None, state: object, samples: tuple[int, ...]
    ) -> tuple[Tensor, Kl]:
        """Paths need no variance; on the fast path one sample of single tokens is drawn with it."""
        if self.paths:
            state = self.own(state)
            q, mean, kl_a, A = self.conditioned(x, state)
            phi, psi = self.features(q, state, samples)
            return sample_paths(mean, A, state.s_g, phi, psi, samples), Kl(state.kl, kl_a)
        if samples or not self.fuses(x):
            return super().sampled(x, padding, state, samples)
        state = self.own(state)
        mean, kl, A, left = self.projections(self.beside(x), state)
        F = fused_sample(left, A, state.S, mean, noise.normal(mean.shape, mean, rows=0))
        return F, Kl(state.kl, kl.sum(-1))

    def conditioned(self, x: Tensor, state: GlobalState) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries [B, H, T, D], mean [B, H, T, V], amortised KL [B] and A [B, H, M, T]."""
        if self.fuses(x):
            xv = self.beside(x)
            mean, kl_a, A, _ = self.projections(xv, state)
            return apart(xv)[0], mean, kl_a.sum(-1), A
        terms = self.terms(*self.projected(x), state)
        mean, kl_a = self.condition(terms, state)
        return terms.q, mean, kl_a.sum(-1), terms.A_q

    def projections(self, xv: Tensor, state: GlobalState) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mean, amortised KL [B, H], A and unexplained variance, as `fused_mean` makes them: eq:odsvgp."""
        packed = state.packed
        if packed is None:
            packed = pack(state.L_inv.to(xv.dtype), state.k_g, state.w_g, self.kernel.log_variance)
        mean, kl, A, left = fused_mean(xv, packed, RBF[type(self.kernel)])
        return mean, kl, A, left

    def features(self, q: Tensor, state: GlobalState, samples: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Random Fourier features of queries and, whitened, of global keys; sequences share frequencies."""
        shape = (*samples, *((1,) if samples else ()), self.num_heads, self.head_width, PAIRS)
        omega = noise.normal(shape, q, rows=None)  # points are in units of the length-scales
        size = (0.5 * self.kernel.log_variance.to(q.dtype)).exp().view(-1, 1, 1) / PAIRS**0.5

        def fourier(x: Tensor) -> Tensor:
            angles = x @ omega
            return size * torch.cat([angles.cos(), angles.sin()], -1)

        return fourier(q), state.L_inv.to(q.dtype) @ fourier(state.k_g)

    def terms(self, q: Tensor, k_a: Tensor, v_a: Tensor, state: GlobalState) -> Terms:
        """Every product and projection the equations speak of; queries that are the keys share theirs."""
        Kqa_va = self.kernel.between(q, k_a) @ v_a
        K_gq, A_q = self.global_projection(q, state)
        Kaa_va, A_a = Kqa_va, A_q
        if self.W_q is not None:
            Kaa_va = self.kernel.between(k_a, k_a) @ v_a
            A_a = self.global_projection(k_a, state)[1]
        return Terms(q, self.kernel.at(q), Kqa_va, Kaa_va, K_gq, A_q, A_a, v_a)

    def condition(self, terms: Terms, state: GlobalState) -> tuple[Tensor, Tensor]:
        """The posterior mean [B, H, T, V] and the amortised KL [B, H]: the form's own equations."""
        raise NotImplementedError


class OrthogonalSgpa(DecoupledSgpa):
    """SGPA as the paper uses it: orthogonally decoupled (eq:odsvgp).

    >>> from sgpa.gp.kernels import ArdRbfKernel
    >>> layer = OrthogonalSgpa(8, 2, ArdRbfKernel(2, 4), num_global=3)
    >>> layer(torch.randn(2, 5, 8), samples=10).value.shape
    torch.Size([10, 2, 5, 8])
    """

    def condition(self, terms: Terms, state: GlobalState) -> tuple[Tensor, Tensor]:
        """eq:odsvgp."""
        t, Aa_va = terms, terms.A_a @ terms.v_a
        mean = orthogonal_mean(t.Kqa_va, t.K_gq.mT @ state.v_g, t.A_q, Aa_va)
        return mean, orthogonal_kl_a(t.Kaa_va, t.v_a, Aa_va)


class ChengBootsSgpa(DecoupledSgpa):
    """Decoupled SGPA after Cheng & Boots (eq:naivedsvgp): global keys enter the variance only.

    v_g does not appear in its equations and stays fixed at zero.
    """

    global_mean = False

    def projections(self, xv: Tensor, state: GlobalState) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """eq:naivedsvgp: what eq:odsvgp takes from the mean, A' A v_a, is given back."""
        mean, kl, A, left = super().projections(xv, state)
        Av = A @ apart(xv)[1]  # [B, H, M, V]
        return mean + A.mT @ Av, kl + 0.5 * Av.square().sum((-2, -1)), A, left

    def condition(self, terms: Terms, state: GlobalState) -> tuple[Tensor, Tensor]:
        """eq:naivedsvgp."""
        del state  # its mean knows no v_g
        return terms.Kqa_va, cheng_boots_kl_a(terms.Kaa_va, terms.v_a)
