"""Kernel attention, Σ_u K(x_t, x_u) v_u, without a T x T matrix in memory.

Tiles of K are computed, used and discarded, as in flash attention; neither kernel normalises over keys, so
there is no running maximum. A padded key has v = 0. K is symmetric, which the backward pass uses: one
sweep over the pairs gives all gradients. The reference is `kernel.between(x, x) @ v`.

Scaled points x and values v are one tensor, xv [B, T, 2, H, D], as one product with both weights makes it;
so are their gradients.
"""

from typing import Any

import torch
from torch import Tensor

from sgpa.gp.fused.shapes import TOKENS, TRITON, by_token, dense, launch, padded, strides, tiles

if TRITON:
    from sgpa.gp.fused import attend_kernels as kernels

INNER = (16, 64)  # keys of the inner loop at a time, in sequences of one tile and in longer ones
REGISTERS = 128  # of a thread, so that four tiles share a multiprocessor
NARROW = 32  # the width up to which that is enough


@torch.library.custom_op("sgpa::attend", mutates_args=())
def fused_attend(xv: Tensor, log_variance: Tensor, rbf: bool) -> Tensor:
    """K_xx v of points and values xv [B, T, 2, H, D] and log σ_f² [H]: [B, H, T, D]."""
    xv = dense(xv)
    B, T, _, H, D = xv.shape
    (x, v), out = split(xv), by_token(xv, B, H, T, D)
    launch(kernels.forward, B * H, tiles(T))(
        x, v, None, None, log_variance, out, None, T, H, 1, D, 1, log_variance.stride(0), *strides(x, out),
        **tile(T, 1, D), RBF=rbf,
    )  # fmt: skip
    return out


@torch.library.custom_op("sgpa::attend_gradient", mutates_args=())
def attend_gradient(xv: Tensor, log_variance: Tensor, g: Tensor, rbf: bool) -> tuple[Tensor, Tensor]:
    """The gradients of xv and, in shares [.., H], log σ_f² for the gradient g of the result."""
    B, T, _, H, D = xv.shape
    dxv, part = xv.new_empty(xv.shape), xv.new_empty(B * tiles(T), H)
    xv, g = dense(xv), dense(g)
    (x, v), (dx, dv) = split(xv), split(dxv)
    launch(kernels.backward, B * H, tiles(T))(
        x, v, None, None, log_variance, None, g, None, None, None, dx, dv, None, part,
        T, H, 1, D, 1, log_variance.stride(0), *strides(x, g, dx), 0, 0, **tile(T, 1, D), RBF=rbf,
    )  # fmt: skip
    return dxv, part


def tile(T: int, M: int, D: int) -> dict[str, int]:
    """Constants of a kernel: queries of a tile, keys at a time, inducing points and width."""
    short = T <= TOKENS
    lean = {"maxnreg": REGISTERS} if short and max(padded(M), padded(D)) <= NARROW else {}
    return {"TT": TOKENS, "UU": INNER[not short], "MM": padded(M), "DD": padded(D), "num_stages": 1} | lean


def split(xv: Tensor) -> tuple[Tensor, Tensor]:
    """Views of x and v in xv [B, T, 2, H, D], [B, H, T, D] each."""
    x, v = xv.transpose(1, 3).unbind(2)  # [B, H, 2, T, D]
    return x, v


@fused_attend.register_fake
def _(xv: Tensor, log_variance: Tensor, rbf: bool) -> Tensor:
    del log_variance, rbf
    B, T, _, H, D = xv.shape
    return by_token(xv, B, H, T, D)


@attend_gradient.register_fake
def _(xv: Tensor, log_variance: Tensor, g: Tensor, rbf: bool) -> tuple[Tensor, Tensor]:
    del log_variance, g, rbf
    B, T, _, H, _ = xv.shape
    return xv.new_empty(xv.shape), xv.new_empty(B * tiles(T), H)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs[:2])
    ctx.rbf = inputs[2]


def _backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    dxv, part = attend_gradient(*ctx.saved_tensors, g, ctx.rbf)
    return dxv, part.sum(0), None


fused_attend.register_autograd(_backward, setup_context=_save)
