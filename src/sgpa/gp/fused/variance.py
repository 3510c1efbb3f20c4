"""The marginal variance of a decoupled layer without its [B, H, T, V M] intermediate.

var[t, v] = u_t + Σ_mn a_mt a_nt S[m, n, v], u the prior variance that the inducing points leave.

The quadratic form is a product of the outer products a_t a_t' [T, M M] with S [M M, V]. A tile of tokens,
of one or several sequences, makes its outer products in registers, a few rows at a time, and never writes
them; the backward pass makes them again. S is symmetric, as s s' is: three of its four quarters are enough,
and its gradient is symmetric too. The references are `posteriors.marginal_variance` and, where the same
kernel draws from the posterior, `posteriors.sample_marginals`.
"""

from typing import Any

import torch
from torch import Tensor

from sgpa.gp.fused.shapes import (
    TOKENS,
    TRITON,
    WIDTH,
    by_token,
    dense,
    launch,
    padded,
    strides,
    sum_parts,
)

if TRITON:
    from triton import cdiv

    from sgpa.gp.fused import variance_kernels as kernels

OUTER = 64  # columns of outer products made at a time; twice and four times as many in the backward pass
SHARES = 11  # of all tokens in the gradient of S: times three blocks of four heads, all of a large GPU

Three = tuple[Tensor, Tensor, Tensor]


@torch.library.custom_op("sgpa::variance", mutates_args=())
def fused_variance(u: Tensor, A: Tensor, S: Tensor) -> Tensor:
    """The variance [B, H, T, V] of u [B, H, T], A [B, H, M, T] and S [H, M, M, V], symmetric in m and n."""
    B, H, _, T = A.shape
    out = A.new_empty(B, H, T, S.shape[-1])
    _forward(u, A, S, None, None, out, None)
    return out


@torch.library.custom_op("sgpa::variance_gradient", mutates_args=())
def variance_gradient(A: Tensor, S: Tensor, w: Tensor) -> Three:
    """The gradients of u, A and S for the gradient w of the variance."""
    return _backward_all(A, S, None, w)


@torch.library.custom_op("sgpa::sample", mutates_args=())
def sample(u: Tensor, A: Tensor, S: Tensor, mean: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """mean + √variance noise, heads of a token side by side, and its slope ½ noise / √variance.

    [B, H, T, V] each.
    """
    mean, noise = mean.contiguous(), noise.contiguous()
    out, slope = by_token(mean, *mean.shape), torch.empty_like(mean)
    _forward(u, A, S, mean, noise, out, slope)
    return out, slope


@torch.library.custom_op("sgpa::sample_gradient", mutates_args=())
def sample_gradient(A: Tensor, S: Tensor, slope: Tensor, g: Tensor) -> Three:
    """The gradients of u, A and S for the gradient g of the sample."""
    return _backward_all(A, S, slope, g)


def _forward(
    u: Tensor, A: Tensor, S: Tensor, mean: Tensor | None, noise: Tensor | None,
    out: Tensor, slope: Tensor | None,
) -> None:  # fmt: skip
    A, S = A.contiguous(), S.contiguous()
    (B, H, M, T), V = A.shape, S.shape[-1]
    launch(kernels.forward, cdiv(B * T, TOKENS), H)(
        u, A, S, mean, noise, out, slope, B * T, T, H, M, V, *strides(u, out),
        TT=TOKENS, MM=padded(M), VV=padded(V), R=max(1, OUTER // padded(M)), LOW=_half(M), num_warps=2,
    )  # fmt: skip


def _backward_all(A: Tensor, S: Tensor, slope: Tensor | None, g: Tensor) -> Three:
    A, S, g = A.contiguous(), S.contiguous(), dense(g)
    (B, H, M, T), V = A.shape, S.shape[-1]
    sizes = (B * T, T, H, M, V)
    du, dA = A.new_empty(B, H, T), torch.empty_like(A)
    tokens = TOKENS if padded(M) == WIDTH else 2 * TOKENS
    launch(kernels.backward_A, cdiv(B * T, tokens), H)(
        A, S, g, slope, du, dA, *sizes, *strides(g),
        TT=tokens, MM=padded(M), VV=padded(V), R=2 * OUTER // padded(M),
    )  # fmt: skip
    columns = _half(M) or padded(M)
    rows = 4 * OUTER // columns
    blocks = cdiv(M, rows) + cdiv(max(0, M - columns), rows)
    dS = S.new_empty(min(SHARES, cdiv(B * T, TOKENS)), *S.shape)
    launch(kernels.backward_S, blocks, H, len(dS))(
        A, g, slope, dS, *sizes, *strides(g), TT=TOKENS, VV=padded(V), R=rows, CC=columns, num_warps=8
    )
    return du, dA, sum_parts(dS)


def _half(M: int) -> int:
    """The inducing points of the lower half; 0 where half a tile is too narrow."""
    return padded(M) // 2 if padded(M) > 16 else 0


@fused_variance.register_fake
def _(u: Tensor, A: Tensor, S: Tensor) -> Tensor:
    del u
    B, H, _, T = A.shape
    return A.new_empty(B, H, T, S.shape[-1])


@sample.register_fake
def _(u: Tensor, A: Tensor, S: Tensor, mean: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    del u, A, S, noise
    return by_token(mean, *mean.shape), mean.new_empty(mean.shape)


@variance_gradient.register_fake
def _(A: Tensor, S: Tensor, w: Tensor) -> Three:
    del w
    return _gradients(A, S)


@sample_gradient.register_fake
def _(A: Tensor, S: Tensor, slope: Tensor, g: Tensor) -> Three:
    del slope, g
    return _gradients(A, S)


def _gradients(A: Tensor, S: Tensor) -> Three:
    B, H, _, T = A.shape
    return A.new_empty(B, H, T), A.new_empty(A.shape), S.new_empty(S.shape)


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs[1:])


def _save_sample(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[1:3], output[1])
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, w: Tensor) -> Three:
    return variance_gradient(*ctx.saved_tensors, w)


def _backward_sample(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *sample_gradient(*ctx.saved_tensors, g), g, None


fused_variance.register_autograd(_backward, setup_context=_save)
sample.register_autograd(_backward_sample, setup_context=_save_sample)


def fused_sample(u: Tensor, A: Tensor, S: Tensor, mean: Tensor, noise: Tensor) -> Tensor:
    """mean + √variance noise, [B, H, T, V]: `posteriors.sample_marginals` of `fused_variance`."""
    return sample(u, A, S, mean, noise)[0]
