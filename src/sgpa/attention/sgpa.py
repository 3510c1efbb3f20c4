"""Decoupled sparse-GP attention: amortised keys carry the mean, global keys the uncertainty."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sgpa.attention.base import Moments
from sgpa.attention.sampled import SampledAttention
from sgpa.errors import InputError, check_fields
from sgpa.kernels import Kernel
from sgpa.linalg import cholesky, full_precision, triangular_inverse
from sgpa.posteriors import (
    cheng_boots_kl_a,
    cheng_boots_posterior,
    orthogonal_kl_a,
    orthogonal_kl_g,
    orthogonal_posterior,
    whiten,
)
from sgpa.types import Kl, Posterior


@dataclass(frozen=True)
class InducingInit:
    """Initial values of the variational parameters of the global inducing points."""

    v_std: float  # of every entry of v_g
    s_std: float  # of every entry of the Cholesky factor below its diagonal
    log_s_mean: float  # of the logarithm of its diagonal
    log_s_std: float


INDUCING_INITS = {
    "paper": InducingInit(1.0, 1.0, 0.0, 1.0),  # every free number a standard normal
    "prior": InducingInit(0.0, 0.0, 0.0, 0.0),  # q(u_g) = p(u_g): no divergence to begin with
    "small": InducingInit(0.01, 0.0, math.log(0.1), 0.0),  # nearly deterministic at the global keys
}


@dataclass(frozen=True)
class GlobalState:
    """All of a layer that depends on its parameters alone, computed once per step or per prediction."""

    k_g: Tensor  # global keys                                     [H, M, D]
    L_inv: Tensor  # inverse Cholesky factor of K_gg, float64      [H, M, M]
    s_g: Tensor  # whitened factor: S_g = L s_g s_g' L'            [H, V, M, M]
    v_g: Tensor  # [H, M, V]
    kl: Tensor  # global KL summed over heads                      []


@dataclass(frozen=True)
class Terms:
    """What the equations of a decoupled layer are made of."""

    q: Tensor  # [B, H, T, D]
    kqq: Tensor  # diag K_qq                    [B, H, T]
    K_qa: Tensor  # [B, H, T, T]
    K_qg: Tensor  # [B, H, T, M]
    A_q: Tensor  # L^-1 K_gq                    [B, H, M, T]
    A_a: Tensor  # L^-1 K_ga                    [B, H, M, T]
    v_a: Tensor  # [B, H, T, V]
    Kaa_va: Tensor  # K_aa v_a                  [B, H, T, V]


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
        tied: queries and keys share their projection.
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
        tied: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(embed_dim, num_heads, kernel, tied=tied, dropout=dropout)
        check_fields(
            type(self).__name__,
            [
                ("num_global", num_global, num_global >= 1, "1 or more"),
                ("init", init, init in INDUCING_INITS, ", ".join(INDUCING_INITS)),
            ],
        )
        self.num_global, self.whitened, self.joint = num_global, whitened, joint
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

    @torch.no_grad()
    def place_global(self, tokens: Tensor) -> None:
        """Put the inducing locations on tokens [N, E] drawn from the layer's input space.

        Locations far from all data have K_qg near 0: they neither reduce the variance nor receive a
        gradient. Starting on data avoids that.
        """
        if tokens.ndim != 2 or tokens.shape[-1] != self.embed_dim:
            raise InputError(f"{self.name}: expected tokens [N, {self.embed_dim}], got {list(tokens.shape)}")
        if len(tokens) < self.num_global:
            raise InputError(
                f"{self.name}: {len(tokens)} tokens are too few to place {self.num_global} inducing points"
            )
        rows = [torch.randperm(len(tokens))[: self.num_global] for _ in range(self.num_heads)]
        self.Z_g.copy_(tokens[torch.stack(rows).to(tokens.device)])

    def global_keys(self, features: Tensor) -> Tensor:
        """k_g = G(Z_g) W_qk for each head: [H, M, E] -> [H, M, D]."""
        W = self.W_qk.weight.unflatten(0, (self.num_heads, self.head_width))  # [H, D, E]
        return features @ W.mT

    def s_factor(self) -> Tensor:
        """The lower-triangular factor that `raw_s_g` stands for, [H, V, M, M]."""
        log_diagonal = self.raw_s_g.diagonal(dim1=-2, dim2=-1)
        return self.raw_s_g.tril(-1) + torch.diag_embed(log_diagonal.exp())

    def whitened_factor(self, L_inv: Tensor) -> Tensor:
        """s_g in float64, whichever of S_g's factors is the free one, [H, V, M, M]."""
        s = self.s_factor().double()
        return s if self.whitened else L_inv.unsqueeze(-3) @ s

    def global_state(self) -> GlobalState:
        """The state of this layer on its own, where G_phi is the identity."""
        with full_precision(self.Z_g):
            return global_states([self], [self.Z_g])[0]

    def global_projection(self, x: Tensor, state: GlobalState) -> tuple[Tensor, Tensor]:
        """K_xg and A_x = L^-1 K_gx for points x [B, H, T, D]."""
        K_xg = self.kernel(x, state.k_g)  # [B, H, T, M]
        return K_xg, whiten(state.L_inv.to(x.dtype), K_xg.mT)

    def unexplained_factor(self, q: Tensor, state: GlobalState) -> Tensor:
        """Cholesky factor of K_qq - Q_qq, [B, H, T, T]."""
        q64 = q.double()
        K_qq = self.kernel.gram(q64)
        A = whiten(state.L_inv, self.kernel(state.k_g.double(), q64))
        scale = K_qq.diagonal(dim1=-2, dim2=-1)
        return cholesky(K_qq - A.mT @ A, "K_qq - Q_qq", self.place_in_batch, scale).to(q.dtype)

    def moments(self, x: Tensor, padding: Tensor | None, state: object = None) -> Moments:
        """Posterior and KL of one layer; the state is computed here when none is given."""
        del padding  # x is zero there, hence v_a is
        if state is None:
            state = self.global_state()
        shape = (self.num_heads, self.num_global, self.head_width)
        if not isinstance(state, GlobalState) or state.k_g.shape != shape:
            raise InputError(f"{self.name}: the state given is not one of this layer's (global keys {shape})")
        terms = self.terms(x, state)
        posterior, kl_a = self.condition(terms, state)
        kl = Kl(state.kl, kl_a.sum(-1))
        L_c = self.unexplained_factor(terms.q, state) if self.joint else None
        return Moments(terms.K_qa, posterior.mean, kl, posterior.variance, L_c, terms.A_q, state.s_g)

    def terms(self, x: Tensor, state: GlobalState) -> Terms:
        """Every Gram matrix and projection the equations speak of."""
        q, k_a = self.queries_keys(x)  # [B, H, T, D]
        v_a = self.heads(x, self.W_v)  # [B, H, T, V]
        K_qa = self.kernel(q, k_a)
        K_qg, A_q = self.global_projection(q, state)
        tied = self.W_q is None
        A_a = A_q if tied else self.global_projection(k_a, state)[1]
        Kaa_va = (K_qa if tied else self.kernel.gram(k_a)) @ v_a
        return Terms(q, self.kernel.diagonal(q), K_qa, K_qg, A_q, A_a, v_a, Kaa_va)

    def condition(self, terms: Terms, state: GlobalState) -> tuple[Posterior, Tensor]:
        """The posterior and the amortised KL of each head: the form's own equations."""
        raise NotImplementedError


class OrthogonalSgpa(DecoupledSgpa):
    """SGPA as the paper uses it: orthogonally decoupled (eq:odsvgp).

    >>> from sgpa.kernels import ArdRbfKernel
    >>> layer = OrthogonalSgpa(8, 2, ArdRbfKernel(2, 4), num_global=3)
    >>> layer(torch.randn(2, 5, 8), samples=10).value.shape
    torch.Size([10, 2, 5, 8])
    """

    def condition(self, terms: Terms, state: GlobalState) -> tuple[Posterior, Tensor]:
        """eq:odsvgp."""
        t = terms
        posterior = orthogonal_posterior(t.kqq, t.K_qa, t.K_qg, t.A_q, t.A_a, t.v_a, state.v_g, state.s_g)
        return posterior, orthogonal_kl_a(t.Kaa_va, t.v_a, t.A_a)


class ChengBootsSgpa(DecoupledSgpa):
    """Decoupled SGPA after Cheng & Boots (eq:naivedsvgp): global keys enter the variance only.

    v_g does not appear in its equations and stays fixed at zero.
    """

    global_mean = False

    def condition(self, terms: Terms, state: GlobalState) -> tuple[Posterior, Tensor]:
        """eq:naivedsvgp."""
        t = terms
        posterior = cheng_boots_posterior(t.kqq, t.K_qa, t.A_q, t.v_a, state.s_g)
        return posterior, cheng_boots_kl_a(t.Kaa_va, t.v_a)


def global_states(layers: Sequence[DecoupledSgpa], features: Sequence[Tensor]) -> tuple[GlobalState, ...]:
    """The states of layers of one shape, from G_phi(Z_g) of each, in float64 and batched over layers."""
    k_g = [layer.global_keys(g) for layer, g in zip(layers, features, strict=True)]  # L times [H, M, D]
    K_gg = torch.stack([layer.kernel.gram(k.double()) for layer, k in zip(layers, k_g, strict=True)])
    L = cholesky(K_gg, "K_gg", lambda at: f"{layers[at[0]].name}, head {at[1] + 1}")  # [L, H, M, M]
    L_inv = triangular_inverse(L)
    s_g = torch.stack([layer.whitened_factor(L_inv[i]) for i, layer in enumerate(layers)])  # [L, H, V, M, M]
    v_g = torch.stack([layer.v_g for layer in layers])  # [L, H, M, V]
    kl = orthogonal_kl_g(L, v_g.double(), s_g).sum(-1)  # [L]
    dtype = v_g.dtype
    return tuple(
        GlobalState(k_g[i], L_inv[i], s_g[i].to(dtype), v_g[i], kl[i].to(dtype)) for i in range(len(layers))
    )
