"""The equations of sparse Gaussian process attention, one pure function each.

Letters (docs/reference/notation.md): q queries, a amortised keys, g global keys, v values, H heads,
T queries, U keys, M global keys, V value width. `A = L^-1 K_zq` is the whitened projection of the queries on
inducing points z with L L' = K_zz. Covariances of inducing points are given by a whitened factor s:
S = L s s' L', one per value dimension ([..., V, M, M]) or shared by all ([..., 1, M, M]).

A padded key must come in with v = 0; neither kernel normalises over keys, so that removes it exactly.
"""

import torch
from torch import Tensor

from sgpa.core.types import Posterior


def whiten(L_inv: Tensor, K_zq: Tensor) -> Tensor:
    """A = L^-1 K_zq, [..., M, T]."""
    return L_inv @ K_zq


def unexplained(kqq: Tensor, A: Tensor) -> Tensor:
    """diag(K_qq - Q_qq), the prior variance that the inducing points leave, at least 0: [..., H, T]."""
    return (kqq - A.square().sum(-2)).clamp_min(0)


def marginal_variance(kqq: Tensor, A: Tensor, s: Tensor) -> Tensor:
    """diag of K_qq + K_qz K_zz^-1 (S - K_zz) K_zz^-1 K_zq, for every value dimension, [..., H, T, V]."""
    if s.ndim > A.ndim:  # every sequence has its own factor
        sA = (A.mT.unsqueeze(-3) @ s).transpose(-3, -2)  # [..., H, T, V, M]
    else:  # one factor for all sequences: one product per head over all their tokens
        sA = torch.einsum("...hmt,hvmn->...htvn", A, s)
    learned = sA.square().sum(-1)  # diag(A' s s' A)                                         [..., H, T, V]
    return unexplained(kqq, A).unsqueeze(-1) + learned


def covariance(Kqq: Tensor, A: Tensor, s: Tensor) -> Tensor:
    """K_qq + K_qz K_zz^-1 (S - K_zz) K_zz^-1 K_zq, for every value dimension, [..., H, V, T, T]."""
    sA = s.mT @ A.unsqueeze(-3)  # [..., H, V, M, T]
    return (Kqq - A.mT @ A).unsqueeze(-3) + sA.mT @ sA


# ---------------------------------------------------------------------------------------------
# eq:fpost -- standard SGPA: the keys k are the inducing points


def standard_posterior(kqq: Tensor, Kqk: Tensor, A: Tensor, v: Tensor, s: Tensor) -> Posterior:
    """eq:fpost with A = L_k^-1 K_kq and S = L_k s s' L_k'; a shared s gives every dimension its variance."""
    mean = Kqk @ v  # [..., H, T, V]
    return Posterior(mean, marginal_variance(kqq, A, s).expand_as(mean))


def standard_kl(Kkk_v: Tensor, v: Tensor, s: Tensor) -> Tensor:
    """KL(q(u) || p(u)) of standard SGPA summed over value dimensions, [..., H]."""
    return 0.5 * (v * Kkk_v).sum((-2, -1)) + covariance_kl(s, v.shape[-1])


# ---------------------------------------------------------------------------------------------
# eq:odsvgp -- orthogonally decoupled SGPA: amortised keys a for the mean, global keys g for the rest


def orthogonal_mean(Kqa_va: Tensor, Kqg_vg: Tensor, A_q: Tensor, Aa_va: Tensor) -> Tensor:
    """The mean of eq:odsvgp with A_q = L_g^-1 K_gq and Aa_va = L_g^-1 K_ga v_a, [..., H, T, V].

    Its variance is `marginal_variance` with S_g = L_g s_g s_g' L_g'.
    """
    return Kqa_va - A_q.mT @ Aa_va + Kqg_vg


def orthogonal_kl_a(Kaa_va: Tensor, v_a: Tensor, Aa_va: Tensor) -> Tensor:
    """½ Σ_d v_a' (K_aa - K_ag K_gg^-1 K_ga) v_a: the amortised part, per sequence, [..., H]."""
    explained = Aa_va.square().sum((-2, -1))  # v_a' Q_aa v_a
    return 0.5 * ((v_a * Kaa_va).sum((-2, -1)) - explained)


def orthogonal_kl_g(w_g: Tensor, s_g: Tensor) -> Tensor:
    """½ Σ_d [v_g' K_gg v_g + tr(K_gg^-1 S_g) - log|K_gg^-1 S_g| - M]: the global part, [..., H].

    w_g = L' v_g, so that its square is v_g' K_gg v_g.
    """
    return 0.5 * w_g.square().sum((-2, -1)) + covariance_kl(s_g, w_g.shape[-1])


# ---------------------------------------------------------------------------------------------
# eq:naivedsvgp -- decoupled SGPA after Cheng & Boots: the mean is K_qa v_a, the variance that of eq:odsvgp


def cheng_boots_kl_a(Kaa_va: Tensor, v_a: Tensor) -> Tensor:
    """½ Σ_d v_a' K_aa v_a: half the squared RKHS norm of the mean, [..., H].

    Not in the paper; Cheng & Boots 2017.
    """
    return 0.5 * (v_a * Kaa_va).sum((-2, -1))


# ---------------------------------------------------------------------------------------------
# attention masks: every token t has inducing points of its own, the keys that it sees. C is the matrix by
# which v_a enters the mean: K_qa - K_qg K_gg^-1 K_ga of eq:odsvgp, K_qa of eq:naivedsvgp


def prefix_kl_a(C_aa: Tensor, v_a: Tensor) -> Tensor:
    """½ Σ_d v_a' C_aa v_a of keys 1 to t, for every t, [..., H, T].

    Key t adds ½ v_t' C_tt v_t + Σ_{u<t} v_t' C_tu v_u, so that all prefixes cost as much as one sequence.
    """
    added = (v_a * (C_aa.tril() @ v_a)).sum(-1)  # [..., H, T]
    twice = C_aa.diagonal(dim1=-2, dim2=-1) * v_a.square().sum(-1)
    return (added - 0.5 * twice).cumsum(-1)


def masked_kl_a(C_aa: Tensor, v_a: Tensor, hidden: Tensor) -> Tensor:
    """½ Σ_d v_a' C_aa v_a of the keys that each token sees, [..., H, T]; `hidden` is [..., T, U]."""
    G = C_aa * (v_a @ v_a.mT)  # [..., H, U, U]
    seen = (~hidden).to(G.dtype)  # [..., T, U]
    return 0.5 * ((seen @ G) * seen).sum(-1)


# ---------------------------------------------------------------------------------------------
# shared pieces


def covariance_kl(s: Tensor, width: int) -> Tensor:
    """½ Σ_d [tr(s s') - log|s s'| - M] over `width` value dimensions, [..., H].

    Whitening cancels K_zz. A factor shared by all dimensions ([..., 1, M, M]) counts `width` times.
    """
    trace = s.square().sum((-2, -1))
    on_diagonal = torch.eye(s.shape[-1], dtype=torch.bool, device=s.device)
    log_det = 2 * torch.where(on_diagonal, s, 1.0).abs().log().sum((-2, -1))
    kl = 0.5 * (trace - log_det - s.shape[-1])  # [..., H, V] or [..., H, 1]
    return kl.sum(-1) * (width // kl.shape[-1])


def sample_marginals(mean: Tensor, variance: Tensor, eps: Tensor) -> Tensor:
    """mean + variance^½ ε, [*S, ..., H, T, V]: for standard normal ε the tokens are independent."""
    return mean + variance.clamp_min(VARIANCE_FLOOR).sqrt() * eps


def sample_jointly(mean: Tensor, L_c: Tensor, A: Tensor, s: Tensor, eps_c: Tensor, eps_g: Tensor) -> Tensor:
    """f ~ N(mean, Σ_d) with the full covariance over tokens (eq:reparam_dgp), [*S, ..., H, T, V].

    Σ_d = C + A' s_d s_d' A with C = K_qq - Q_qq = L_c L_c', which does not depend on d: two independent
    draws, of ε_c [*S, ..., H, T, V] and ε_g [*S, ..., H, V, M, 1], with one T x T factor per head replace V
    draws with a factor each.
    """
    learned = (A.mT.unsqueeze(-3) @ (s @ eps_g)).squeeze(-1).mT  # A' s_d ε_d     [*S, ..., H, T, V]
    return mean + L_c @ eps_c + learned


VARIANCE_FLOOR = 1e-12  # keeps the gradient of the square root finite
