"""The marginal variance of a decoupled layer without its [B, H, T, V M] intermediate.

var[t, v] = u_t + Σ_mn a_mt a_nt S[m, n, v], u the prior variance that the inducing points leave.

The quadratic form is a product of the outer products a_t a_t' [T, M M] with S [M M, V]. A tile of tokens,
of one or several sequences, makes its outer products in registers, a few rows at a time, and never writes
them; the backward pass makes them again. S is symmetric, as s s' is: three of its four quarters are enough,
and its gradient is symmetric too. The reference is `posteriors.plain_variance`.
"""

from typing import Any

import torch
from torch import Tensor

from sgpa.fused.shapes import TOKENS, TRITON, WIDTH, dense, over, padded, side_by_side, steps

if TRITON:
    from triton import cdiv

    from sgpa.fused import variance_kernels as kernels

OUTER = 64  # columns of outer products made at a time; twice and four times as many in the backward pass
SHARES = 11  # of all tokens in the gradient of S: times three blocks of four heads, all of a large GPU

Three = tuple[Tensor, Tensor, Tensor]


def fuses(A: Tensor, s: Tensor) -> bool:
    """Whether the fast path takes these: on a GPU, in float32, one factor for all sequences."""
    fits = A.shape[-2] <= WIDTH and s.shape[-3] <= WIDTH
    return TRITON and A.is_cuda and A.dtype == torch.float32 and A.ndim == s.ndim == 4 and fits


@torch.library.custom_op("sgpa::variance", mutates_args=())
def fused_variance(u: Tensor, A: Tensor, S: Tensor) -> Tensor:
    """The variance [B, H, T, V] of u [B, H, T], A [B, H, M, T] and S [H, M, M, V], symmetric in m and n."""
    A, S = A.contiguous(), S.contiguous()
    (B, H, M, T), V = A.shape, S.shape[-1]
    out = A.new_empty(B, H, T, V)
    sizes, size = (B * T, T, H, M, V), {"MM": padded(M), "VV": padded(V)}
    over(kernels.forward, cdiv(B * T, TOKENS), H)(
        u, A, S, out, *sizes, *steps(u, out),
        **size, TT=TOKENS, R=max(1, OUTER // padded(M)), LOW=_half(M), num_warps=2,
    )  # fmt: skip
    return out


@torch.library.custom_op("sgpa::variance_gradient", mutates_args=())
def variance_gradient(A: Tensor, S: Tensor, w: Tensor) -> Three:
    """The gradients of u, of A and, in shares to be summed, of S, for the gradient w of the variance."""
    A, S, w = A.contiguous(), S.contiguous(), dense(w)
    (B, H, M, T), V = A.shape, S.shape[-1]
    sizes, size = (B * T, T, H, M, V), {"MM": padded(M), "VV": padded(V)}
    du, dA = A.new_empty(B, H, T), torch.empty_like(A)
    dS = torch.empty(_shares(B * T), *S.shape, dtype=S.dtype, device=S.device)
    tokens = TOKENS if padded(M) == WIDTH else 2 * TOKENS
    over(kernels.backward_A, cdiv(B * T, tokens), H)(
        A, S, w, du, dA, *sizes, *steps(w), **size, TT=tokens, R=2 * OUTER // padded(M)
    )
    columns = _half(M) or padded(M)
    rows = 4 * OUTER // columns
    blocks = cdiv(M, rows) + cdiv(max(0, M - columns), rows)
    over(kernels.backward_S, blocks, H, len(dS))(
        A, w, dS, *sizes, *steps(w), TT=TOKENS, VV=padded(V), R=rows, CC=columns, num_warps=8
    )
    return du, dA, dS


def _half(M: int) -> int:
    """The inducing points of the lower half; none where half a tile is too narrow."""
    return padded(M) // 2 if padded(M) > 16 else 0


def _shares(tokens: int) -> int:
    return int(min(SHARES, -(-tokens // TOKENS)))


@fused_variance.register_fake
def _(u: Tensor, A: Tensor, S: Tensor) -> Tensor:
    del u
    B, H, _, T = A.shape
    return A.new_empty(B, H, T, S.shape[-1])


@variance_gradient.register_fake
def _(A: Tensor, S: Tensor, w: Tensor) -> Three:
    del w
    B, H, _, T = A.shape
    return A.new_empty(B, H, T), A.new_empty(A.shape), S.new_empty(_shares(B * T), *S.shape)


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs[1:])


def _backward(ctx: Any, w: Tensor) -> Three:
    du, dA, dS = variance_gradient(*ctx.saved_tensors, w)
    return du, dA, dS.sum(0)


fused_variance.register_autograd(_backward, setup_context=_save)
fused_variance.register_vmap(side_by_side(fused_variance, "bbh", "b"))
variance_gradient.register_vmap(side_by_side(variance_gradient, "bhb", "bbb"))
