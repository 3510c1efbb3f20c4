"""Mean and amortised KL of orthogonally decoupled SGPA (eq:odsvgp) without a Gram matrix in memory.

    A = L^-1 K_gx                                                        [M, T]
    P = A v                                                              [M, V]
    mean = K v + A' (w_g - P),  w_g = L' v_g, for K_xg v_g = A' w_g      [T, V]
    kl = ½ (v' K v - |P|²)

The references are `posteriors.orthogonal_posterior` and `orthogonal_kl_a`.
"""

from typing import Any

import torch
from torch import Tensor

from sgpa.fused.attend import pull
from sgpa.fused.shapes import TOKENS, TRITON, dense, over, padded, side_by_side, steps, tiles

if TRITON:
    from sgpa.fused import mean_kernels as kernels

PROGRAMS = 50  # that share the tiles of a head in the backward pass

Four = tuple[Tensor, Tensor, Tensor, Tensor]


@torch.library.custom_op("sgpa::mean", mutates_args=())
def mean(
    x: Tensor, v: Tensor, k_g: Tensor, L_inv: Tensor, w_g: Tensor, log_variance: Tensor, rbf: bool
) -> Four:
    """mean [B, H, T, V], kl [B, H], A [B, H, M, T] and P [B, H, M, V].

    Of scaled points x [B, H, T, D], values v [B, H, T, V], scaled global keys k_g [H, M, D], L^-1 [H, M, M],
    w_g [H, M, V] and log σ_f² [H].
    """
    x, v, (k_g, L_inv, w_g) = dense(x), dense(v), (y.contiguous() for y in (k_g, L_inv, w_g))
    (B, H, T, D), V, M, n = x.shape, v.shape[-1], k_g.shape[1], tiles(x.shape[2])
    tile, sizes = _tile(M, D, V), (T, H, M, D, V, *steps(x, v))
    A, P = x.new_empty(B, H, M, T), x.new_empty(B, H, n, M, V)
    out, kl = x.new_empty(B, H, T, V), x.new_empty(B, H, n)
    if n > 1:  # P takes all tiles of a sequence, so that they cannot go on to the mean at once
        over(kernels.project, B * H, n)(
            x, v, k_g, L_inv, log_variance, A, P, *sizes, **tile, RBF=rbf, num_warps=2
        )
    P = P.sum(2) if n > 1 else P.squeeze(2)
    over(kernels.forward, B * H, n)(
        x, v, k_g, L_inv, w_g, log_variance, A, P, out, kl, *sizes, **tile, RBF=rbf, ALONE=n == 1
    )
    return out, kl.sum(2) if n > 1 else kl.squeeze(2), A, P


@torch.library.custom_op("sgpa::mean_gradient", mutates_args=())
def mean_gradient(
    x: Tensor, v: Tensor, k_g: Tensor, L_inv: Tensor, w_g: Tensor, log_variance: Tensor,
    A: Tensor, P: Tensor, g: Tensor, price: Tensor, dA: Tensor, rbf: bool,
) -> Four:  # fmt: skip
    """Shares of the gradients, to be summed over the first dimension, for those of mean (g), kl (price), A:
    of x, of v, of L^-1, k_g, w_g and log σ_f² side by side, and more of log σ_f².
    """
    x, v, g = (dense(y) for y in (x, v, g))
    k_g, L_inv, w_g, given = (y.contiguous() for y in (k_g, L_inv, w_g, dA))
    (B, H, T, D), V, M, n = x.shape, v.shape[-1], k_g.shape[1], tiles(x.shape[2])
    tile = _tile(M, D, V)
    narrow = {name: size for name, size in tile.items() if name != "DD"}
    dx, dv = x.new_empty(2, *x.shape), x.new_empty(2, *v.shape)  # through A, and through K
    dA, log_part = torch.empty_like(A), x.new_empty(B * n, H)
    shift = None
    if n > 1:  # P depends on all tiles of a sequence, and so does what flows back through it
        shift = torch.empty_like(P)
        over(kernels.reach, B * H)(A, g, shift, T, H, M, V, *steps(g), **narrow)
    over(kernels.backward_A, B * H, n)(
        v, w_g, A, P, g, price, given, shift, dA, dv, T, H, M, V, *steps(v, g, price), **narrow
    )
    part = x.new_empty(min(PROGRAMS, B * n), H, M, M + D + V + 1)
    over(kernels.backward_x, len(part), H)(
        x, g, k_g, L_inv, log_variance, A, dA, dx, part, B, T, H, M, D, V, *steps(x, g), **tile, RBF=rbf
    )
    pull(x, v, log_variance, g, price, rbf, dx[1], dv[1], log_part)
    return dx, dv, part, log_part


def _tile(M: int, D: int, V: int) -> dict[str, int]:
    return {"TT": TOKENS, "MM": padded(M), "DD": padded(D), "VV": padded(V)}


@mean.register_fake
def _(x: Tensor, v: Tensor, k_g: Tensor, L_inv: Tensor, w_g: Tensor, log_variance: Tensor, rbf: bool) -> Four:
    del L_inv, w_g, log_variance, rbf
    (B, H, T, _), V, M = x.shape, v.shape[-1], k_g.shape[1]
    shapes = ((B, H, T, V), (B, H), (B, H, M, T), (B, H, M, V))
    out, kl, A, P = (x.new_empty(shape) for shape in shapes)
    return out, kl, A, P


@mean_gradient.register_fake
def _(
    x: Tensor, v: Tensor, k_g: Tensor, L_inv: Tensor, w_g: Tensor, log_variance: Tensor,
    A: Tensor, P: Tensor, g: Tensor, price: Tensor, dA: Tensor, rbf: bool,
) -> Four:  # fmt: skip
    del L_inv, w_g, log_variance, A, P, g, price, dA, rbf
    (B, H, T, D), V, M, n = x.shape, v.shape[-1], k_g.shape[1], tiles(x.shape[2])
    dx, dv = x.new_empty(2, B, H, T, D), x.new_empty(2, B, H, T, V)
    part = x.new_empty(min(PROGRAMS, B * n), H, M, M + D + V + 1)
    return dx, dv, part, x.new_empty(B * n, H)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Four) -> None:
    ctx.save_for_backward(*inputs[:6], output[2], output[3])
    ctx.rbf = inputs[6]


def _backward(ctx: Any, g: Tensor, price: Tensor, dA: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    dx, dv, part, log_part = mean_gradient(*ctx.saved_tensors, g, price, dA, ctx.rbf)
    M = part.shape[-2]
    dL, dk, dw, d_log = part.sum(0).split([M, dx.shape[-1], dv.shape[-1], 1], -1)
    d_log = log_part.sum(0) + d_log.sum((1, 2))
    return dx[0] + dx[1], dv[0] + dv[1], dk, dL, dw, d_log, None


mean.register_autograd(_backward, setup_context=_save)
mean.register_vmap(side_by_side(mean, "bbhhhh-", "bbbb"))
mean_gradient.register_vmap(side_by_side(mean_gradient, "bbhhhhbbbbb-", "ssbb"))


def fused_mean(
    x: Tensor, v: Tensor, k_g: Tensor, L_inv: Tensor, w_g: Tensor, log_variance: Tensor, rbf: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """mean [B, H, T, V], amortised KL [B, H] and A [B, H, M, T]; arguments as in `mean`."""
    out, kl, A, _ = mean(x, v, k_g, L_inv, w_g, log_variance, rbf)
    return out, kl, A
