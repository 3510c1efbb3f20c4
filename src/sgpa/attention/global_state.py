"""What decoupled layers compute from their parameters alone: global keys, K_gg's factor, S_g and its KL."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sgpa.attention import backend
from sgpa.core.precision import recording
from sgpa.gp.fused import fused_inducing
from sgpa.gp.linalg import JITTERS, inverse_factor
from sgpa.gp.posteriors import orthogonal_kl_g

if TYPE_CHECKING:
    from sgpa.attention.decoupled import DecoupledSgpa


@dataclass(frozen=True)
class GlobalState:
    """All of a layer that depends on its parameters alone, computed once per step or per prediction."""

    k_g: Tensor  # global keys in units of the length-scales      [H, M, D]
    L_inv: Tensor  # inverse Cholesky factor of K_gg, made in float64   [H, M, M]
    s_g: Tensor  # whitened factor: S_g = L s_g s_g' L'            [H, V, M, M]
    S: Tensor  # s_g s_g', value dimensions last                   [H, M, M, V]
    v_g: Tensor  # [H, M, V]
    w_g: Tensor  # L' v_g                                          [H, M, V]
    kl: Tensor  # global KL summed over heads                      []
    packed: Tensor | None = None  # L_inv, k_g, w_g and log σ_f² as the operators read them   [H, M, N]


def lower(raw: Tensor) -> Tensor:
    """The strictly lower triangle of raw [..., M, M] with the exponential of its diagonal.

    Entries are selected by a mask: reading and writing diagonals would take passes of their own.
    """
    on_diagonal = torch.eye(raw.shape[-1], dtype=torch.bool, device=raw.device)
    return torch.where(on_diagonal, torch.where(on_diagonal, raw, 0.0).exp(), raw.tril(-1))


def global_states(layers: Sequence["DecoupledSgpa"], features: Tensor) -> tuple[GlobalState, ...]:
    """The states of layers of one shape, from their G_phi(Z_g) [L, H, M, E], in float64 and all at once."""
    kernels = [layer.kernel for layer in layers]
    W = torch.stack([layer.W_qk.weight for layer in layers]).unflatten(1, (layers[0].num_heads, -1))
    scale = torch.stack([kernel.inverse_lengthscale(W.dtype) for kernel in kernels])  # [L, H, D]
    k_g = features @ (W * scale.unsqueeze(-1)).mT  # [L, H, M, D]
    positions: list[Tensor] = [layer.places_g for layer in layers if layer.places_g is not None]
    k_g = k_g + torch.stack(positions) if positions else k_g
    log_variance = torch.stack([kernel.log_variance for kernel in kernels])  # [L, H]
    raw = torch.stack([layer.raw_s_g for layer in layers])  # [L, H, V, M, M]
    v_g = torch.stack([layer.v_g for layer in layers])  # [L, H, M, V]
    operators = all(layer.controls_own_precision and layer.whitened for layer in layers)
    if backend.choose(k_g, operators).fused:
        rbf = backend.RBF[type(kernels[0])]
        packed, S, kl = fused_inducing(k_g, log_variance, raw, v_g, JITTERS[0], rbf)
        if recording(kl) or kl.isfinite().all():
            return _unpacked(k_g, packed, raw, S, v_g, kl)
    return plain_states(layers, k_g, log_variance, raw, v_g)


def _unpacked(
    k_g: Tensor, packed: Tensor, raw: Tensor, S: Tensor, v_g: Tensor, kl: Tensor
) -> tuple[GlobalState, ...]:
    """The states of `fused_inducing`."""
    M, D = k_g.shape[-2:]
    L_inv, _, w_g, _ = packed.tensor_split([M, M + D, M + 2 * D], -1)
    parts = (k_g, L_inv, lower(raw), S, v_g, w_g, kl.sum(-1).to(v_g.dtype), packed)
    return tuple(GlobalState(*each) for each in zip(*parts, strict=True))


def plain_states(
    layers: Sequence["DecoupledSgpa"], k_g: Tensor, log_variance: Tensor, raw: Tensor, v_g: Tensor
) -> tuple[GlobalState, ...]:
    """The states from scaled keys and raw factors: the reference of `fused_inducing`, with more jitter."""
    points = k_g.double()
    K_gg = (layers[0].kernel.exponent(points, points) + log_variance.double()[..., None, None]).exp()
    L, L_inv = inverse_factor(K_gg, "K_gg", lambda at: f"{layers[at[0]].name}, head {at[1] + 1}")
    s_g = lower(raw).double()
    if not all(layer.whitened for layer in layers):
        free = torch.tensor([layer.whitened for layer in layers], device=s_g.device).view(-1, 1, 1, 1, 1)
        s_g = torch.where(free, s_g, L_inv.unsqueeze(-3) @ s_g)
    w_g = L.mT @ v_g.double()
    S = (s_g @ s_g.mT).permute(0, 1, 3, 4, 2)  # [L, H, M, M, V]
    kl = orthogonal_kl_g(w_g, s_g).sum(-1)  # [L]
    dtype = v_g.dtype
    s_g, S, w_g, kl = s_g.to(dtype), S.to(dtype).contiguous(), w_g.to(dtype), kl.to(dtype)
    return tuple(GlobalState(*each) for each in zip(k_g, L_inv, s_g, S, v_g, w_g, kl, strict=True))
