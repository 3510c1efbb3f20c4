"""Mean and amortised KL of orthogonally decoupled SGPA (eq:odsvgp) without a Gram matrix in memory.

    A = L^-1 K_gx                                                                    [M, T]
    mean = (K - A'A) v + A' w_g,  w_g = L' v_g, for K_xg v_g = A' w_g                [T, D]
    kl = ½ v' (K - A'A) v
    unexplained_t = max(0, K(x_t, x_t) - Σ_m A_mt²), what the global keys leave of the prior variance

Points and values are one tensor, xv [B, T, 2, H, D], and so is what depends on parameters alone: a row of a
state [H, M, N] holds a row of L^-1, of the scaled global keys and of w_g, and log σ_f² (`pack`). The
references are `posteriors.orthogonal_mean` and `orthogonal_kl_a`.
"""

from typing import Any

import torch
from torch import Tensor

from sgpa.gp.fused.attend import NARROW, split, tile
from sgpa.gp.fused.shapes import TOKENS, TRITON, dense, launch, padded, strides, sum_parts, tiles

if TRITON:
    from triton import cdiv

    from sgpa.gp.fused import attend_kernels, mean_kernels

PROGRAMS = 100  # that share the tiles of a head in the backward pass
FEW = 32  # tokens of such a tile
ALIGNED = 16  # numbers: a row of a state is a multiple of them

Two = tuple[Tensor, Tensor]
Four = tuple[Tensor, Tensor, Tensor, Tensor]


def row(M: int, D: int) -> int:
    """N, the numbers in a row of a state of M keys of width D."""
    return -(-(M + 2 * D + 1) // ALIGNED) * ALIGNED


def pack(L_inv: Tensor, k_g: Tensor, w_g: Tensor, log_variance: Tensor) -> Tensor:
    """A state [..., M, N] of L^-1 [..., M, M], k_g and w_g [..., M, D] and log σ_f² [...]."""
    M, D = k_g.shape[-2:]
    rest = log_variance[..., None, None].expand(*k_g.shape[:-1], row(M, D) - M - 2 * D)
    return torch.cat([L_inv, k_g, w_g, rest], -1)


@torch.library.custom_op("sgpa::mean", mutates_args=())
def fused_mean(xv: Tensor, state: Tensor, rbf: bool) -> Four:
    """mean [B, H, T, D], kl [B, H], A [B, H, M, T] and unexplained [B, H, T]."""
    xv, state = dense(xv), state.contiguous()
    (B, T, _, H, D), (_, M, N), n = xv.shape, state.shape, tiles(xv.shape[1])
    (x, v), out = split(xv), xv.new_empty(B, H, T, D)
    A, unexplained, kl = x.new_empty(B, H, M, T), x.new_empty(B, H, T), x.new_empty(B, H, n)
    sizes = (T, H, M, D, N)
    launch(mean_kernels.project, B * H, n)(
        x, state, A, unexplained, *sizes, *strides(x), **_tile(TOKENS, M, D), RBF=rbf
    )
    w_g, log_variance = _read(state, D)
    launch(attend_kernels.forward, B * H, n)(
        x, v, A, w_g, log_variance, out, kl, *sizes, M * N, *strides(x, out),
        **tile(T, M, D), RBF=rbf,
    )  # fmt: skip
    return out, kl.sum(2) if n > 1 else kl.squeeze(2), A, unexplained


@torch.library.custom_op("sgpa::mean_gradient", mutates_args=())
def mean_gradient(
    xv: Tensor, state: Tensor, A: Tensor, unexplained: Tensor,
    g: Tensor, price: Tensor, dA: Tensor, du: Tensor, rbf: bool,
) -> Two:  # fmt: skip
    """The gradients of xv and state, for those of mean (g), kl (price), A and unexplained (du)."""
    xv, state, g = dense(xv), state.contiguous(), dense(g)
    given, du = dA.contiguous(), du.contiguous()
    (B, T, _, H, D), (_, M, N), n = xv.shape, state.shape, tiles(xv.shape[1])
    dxv, dA, log_part = xv.new_empty(xv.shape), torch.empty_like(A), xv.new_empty(B * n, H)
    (x, v), (dx, dv) = split(xv), split(dxv)
    sizes = (T, H, M, D, N)
    w_g, log_variance = _read(state, D)
    launch(attend_kernels.backward, B * H, n)(
        x, v, A, w_g, log_variance, unexplained, g, price, given, du, dx, dv, dA, log_part,
        *sizes, M * N, *strides(x, g, dx), *price.stride(), **_heavy(T, M, D), RBF=rbf,
    )  # fmt: skip
    part = x.new_empty(min(PROGRAMS, B * cdiv(T, FEW)), H, M, N)
    launch(mean_kernels.backward_x, len(part), H)(
        x, g, state, A, unexplained, dA, du, log_part, dx, part, B, *sizes, *strides(x, g, dx),
        **_tile(FEW, M, D), PER=TOKENS // FEW, RBF=rbf,
        num_warps=2 if max(padded(M), padded(D)) <= NARROW else 4, num_stages=2,
    )  # fmt: skip
    return dxv, sum_parts(part)


def _read(state: Tensor, D: int) -> tuple[Tensor, Tensor]:
    """Views of a state that begin at w_g and at log σ_f²."""
    M = state.shape[1]
    return state[:, :, M + D :], state[:, :, M + 2 * D :]


def _heavy(T: int, M: int, D: int) -> dict[str, int]:
    """Constants of the backward pass, which needs many registers."""
    usual = {name: n for name, n in tile(T, M, D).items() if name != "maxnreg"}
    return usual | ({"UU": 32, "num_stages": 3} if T <= TOKENS else {})


def _tile(tokens: int, M: int, D: int) -> dict[str, int]:
    """Constants of a kernel without an inner loop over keys."""
    return {"TT": tokens, "MM": padded(M), "DD": padded(D)}


@fused_mean.register_fake
def _(xv: Tensor, state: Tensor, rbf: bool) -> Four:
    del rbf
    (B, T, _, H, D), M = xv.shape, state.shape[1]
    shapes = ((B, H, T, D), (B, H), (B, H, M, T), (B, H, T))
    out, kl, A, unexplained = (xv.new_empty(shape) for shape in shapes)
    return out, kl, A, unexplained


@mean_gradient.register_fake
def _(
    xv: Tensor, state: Tensor, A: Tensor, unexplained: Tensor,
    g: Tensor, price: Tensor, dA: Tensor, du: Tensor, rbf: bool,
) -> Two:  # fmt: skip
    del A, unexplained, g, price, dA, du, rbf
    return xv.new_empty(xv.shape), state.new_empty(state.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Four) -> None:
    ctx.save_for_backward(*inputs[:2], *output[2:])
    ctx.rbf = inputs[2]


def _backward(ctx: Any, g: Tensor, price: Tensor, dA: Tensor, du: Tensor) -> tuple[Tensor | None, ...]:
    return *mean_gradient(*ctx.saved_tensors, g, price, dA, du, ctx.rbf), None


fused_mean.register_autograd(_backward, setup_context=_save)
