"""The marginal variance of a decoupled layer without its [B, H, T, V M] intermediate.

var[t, v] = max(0, k_t - Σ_m a_mt²) + Σ_mn a_mt a_nt S[m, n, v].

The quadratic form is a product of the outer products a_t a_t' [T, M M] with S [M M, V]. A tile of tokens,
of one or several sequences, makes its outer products in registers, a few rows at a time, and never writes
them; the backward pass makes them again. The reference is `posteriors.plain_variance`.
"""

from typing import Any

import torch
from torch import Tensor

from sgpa.fused.shapes import TOKENS, TRITON, WIDTH, dense, over, padded, side_by_side, steps

if TRITON:
    from triton import cdiv

    from sgpa.fused import variance_kernels as kernels

OUTER = 128  # columns of outer products made at a time
SHARES = 8  # of all tokens in the gradient of S

Three = tuple[Tensor, Tensor, Tensor]


def fuses(A: Tensor, s: Tensor) -> bool:
    """Whether the fast path takes these: on a GPU, in float32, one factor for all sequences."""
    fits = A.shape[-2] <= WIDTH and s.shape[-3] <= WIDTH
    return TRITON and A.is_cuda and A.dtype == torch.float32 and A.ndim == s.ndim == 4 and fits


@torch.library.custom_op("sgpa::variance", mutates_args=())
def fused_variance(kqq: Tensor, A: Tensor, S: Tensor) -> Tensor:
    """The variance [B, H, T, V] of kqq [B, H, T], A [B, H, M, T] and S [H, M, M, V]."""
    A, S = A.contiguous(), S.contiguous()
    (B, H, M, T), V = A.shape, S.shape[-1]
    out = torch.empty(B, H, T, V, dtype=A.dtype, device=A.device)
    tile, rows, sizes = _tile(M, V), max(1, OUTER // padded(M)), (B * T, T, H, M, V)
    over(kernels.forward, cdiv(B * T, TOKENS), H)(
        kqq, A, S, out, *sizes, *steps(kqq), **tile, R=rows, num_warps=2
    )
    return out


@torch.library.custom_op("sgpa::variance_gradient", mutates_args=())
def variance_gradient(kqq: Tensor, A: Tensor, S: Tensor, w: Tensor) -> Three:
    """The gradients of kqq, of A and, in shares to be summed, of S, for the gradient w of the variance."""
    A, S, w = A.contiguous(), S.contiguous(), dense(w)
    (B, H, M, T), V = A.shape, S.shape[-1]
    tile, rows, sizes = _tile(M, V), max(1, OUTER // padded(M)), (B * T, T, H, M, V)
    dk, dA = torch.empty(B, H, T, dtype=A.dtype, device=A.device), torch.empty_like(A)
    dS = torch.empty(_shares(B * T), *S.shape, dtype=S.dtype, device=S.device)
    over(kernels.backward_A, cdiv(B * T, TOKENS), H)(
        kqq, A, S, w, dk, dA, *sizes, *steps(kqq, w), **tile, R=rows
    )
    over(kernels.backward_S, cdiv(M, 2 * rows), H, len(dS))(
        A, w, dS, *sizes, *steps(w), **tile, R=2 * rows, num_warps=8
    )
    return dk, dA, dS


def _tile(M: int, V: int) -> dict[str, int]:
    return {"TT": TOKENS, "MM": padded(M), "VV": padded(V)}


def _shares(tokens: int) -> int:
    return int(min(SHARES, -(-tokens // TOKENS)))


@fused_variance.register_fake
def _(kqq: Tensor, A: Tensor, S: Tensor) -> Tensor:
    del kqq
    B, H, _, T = A.shape
    return A.new_empty(B, H, T, S.shape[-1])


@variance_gradient.register_fake
def _(kqq: Tensor, A: Tensor, S: Tensor, w: Tensor) -> Three:
    del w
    return A.new_empty(kqq.shape), A.new_empty(A.shape), S.new_empty(_shares(kqq[:, 0].numel()), *S.shape)


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, w: Tensor) -> Three:
    dk, dA, dS = variance_gradient(*ctx.saved_tensors, w)
    return dk, dA, dS.sum(0)


fused_variance.register_autograd(_backward, setup_context=_save)
fused_variance.register_vmap(side_by_side(fused_variance, "bbh", "b"))
variance_gradient.register_vmap(side_by_side(variance_gradient, "bbhb", "bbb"))
