"""Kernel attention, Σ_u K(x_t, x_u) v_u, without a T x T matrix in memory.

Tiles of K are made, used and forgotten, as in flash attention; neither kernel normalises over keys, so there
is no running maximum to keep. A padded key has v = 0. K is symmetric, which the backward pass uses: one
sweep over the pairs gives all gradients. The reference is `kernel.between(x, x) @ v`.
"""

from typing import Any

import torch
from torch import Tensor

from sgpa.fused.shapes import TOKENS, TRITON, dense, over, padded, side_by_side, steps, tiles

if TRITON:
    from sgpa.fused import attend_kernels as kernels


@torch.library.custom_op("sgpa::attend", mutates_args=())
def fused_attend(x: Tensor, v: Tensor, log_variance: Tensor, rbf: bool) -> Tensor:
    """K_xx v of scaled points x [B, H, T, D], values v [B, H, T, V] and log σ_f² [H]: [B, H, T, V]."""
    x, v = dense(x), dense(v)
    (B, H, T, D), V = x.shape, v.shape[-1]
    out = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    over(kernels.forward, B * H, tiles(T))(
        x, v, log_variance, out, T, H, D, V, *steps(x, v), TT=TOKENS, DD=padded(D), VV=padded(V), RBF=rbf
    )
    return out


@torch.library.custom_op("sgpa::attend_gradient", mutates_args=())
def attend_gradient(
    x: Tensor, v: Tensor, log_variance: Tensor, g: Tensor, rbf: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, v and, in shares [.., H], log σ_f² for the gradient g of the result."""
    B, H, T, _ = x.shape
    shapes = (x.shape, v.shape, (B * tiles(T), H))
    dx, dv, part = (torch.empty(shape, dtype=x.dtype, device=x.device) for shape in shapes)
    pull(x, v, log_variance, g, None, rbf, dx, dv, part)
    return dx, dv, part


def pull(
    x: Tensor, v: Tensor, log_variance: Tensor, g: Tensor, price: Tensor | None, rbf: bool,
    dx: Tensor, dv: Tensor, part: Tensor,
) -> None:  # fmt: skip
    """Write the gradients of g·(K v) + ½ price v' K v to dx and dv, and shares of d log σ_f² to part."""
    x, v, g = dense(x), dense(v), dense(g)
    (B, H, T, D), V = x.shape, v.shape[-1]
    over(kernels.backward, B * H, tiles(T))(
        x, v, log_variance, g, price, dx, dv, part, T, H, D, V, *steps(x, v, g),
        *((0, 0) if price is None else price.stride()), TT=TOKENS, DD=padded(D), VV=padded(V), RBF=rbf,
    )  # fmt: skip


@fused_attend.register_fake
def _(x: Tensor, v: Tensor, log_variance: Tensor, rbf: bool) -> Tensor:
    del x, log_variance, rbf
    return v.new_empty(v.shape)


@attend_gradient.register_fake
def _(x: Tensor, v: Tensor, log_variance: Tensor, g: Tensor, rbf: bool) -> tuple[Tensor, Tensor, Tensor]:
    del log_variance, g, rbf
    B, H, T, _ = x.shape
    return x.new_empty(x.shape), v.new_empty(v.shape), x.new_empty(B * tiles(T), H)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs[:3])
    ctx.rbf = inputs[3]


def _backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    dx, dv, part = attend_gradient(*ctx.saved_tensors, g, ctx.rbf)
    return dx, dv, part.sum(0), None


fused_attend.register_autograd(_backward, setup_context=_save)
fused_attend.register_vmap(side_by_side(fused_attend, "bbh-", "b"))
attend_gradient.register_vmap(side_by_side(attend_gradient, "bbhb-", "bbb"))
