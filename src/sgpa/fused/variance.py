"""The marginal variance of a decoupled layer without its [B, H, T, V M] intermediate.

var[t, v] = max(0, k_t - Σ_m a_mt²) + Σ_mn a_mt a_nt S_v[m, n],  S_v = s_v s_v'.

The quadratic form is a product of the outer products a_t a_t' [T, M M] with S [M M, V]. A tile of tokens
makes its outer products in registers, one row m at a time, and never writes them. S is formed once for all
tokens. The reference is `posteriors.plain_variance`.
"""

from typing import Any

import torch
from torch import Tensor

try:  # no Triton, no fast path: the reference is used
    from triton import cdiv, next_power_of_2

    from sgpa.fused import variance_kernels as kernels
except ImportError:
    kernels = None  # type: ignore[assignment]

TOKENS = 128  # of a tile
SHARES = 8  # of all tokens, each a program of its own


def fuses(A: Tensor, s: Tensor) -> bool:
    """Whether the fast path takes these: on a GPU, in float32, one factor for all sequences."""
    return kernels is not None and A.is_cuda and A.dtype == torch.float32 and s.ndim == A.ndim


def fused_variance(kqq: Tensor, A: Tensor, s: Tensor) -> Tensor:
    """`marginal_variance` of kqq [B, H, T], A [B, H, M, T] and s [H, V, M, M], as [B, H, T, V]."""
    S = torch.einsum("hvmk,hvnk->hmnv", s, s).contiguous()  # [H, M, M, V]
    return _Variance.apply(kqq, A, S)


class _Variance(torch.autograd.Function):
    """The backward pass makes the outer products again instead of storing them."""

    @staticmethod
    def forward(kqq: Tensor, A: Tensor, S: Tensor) -> Tensor:
        kqq, A = kqq.contiguous(), A.contiguous()
        B, H, M, T = A.shape
        out = torch.empty(B, H, T, S.shape[-1], dtype=A.dtype, device=A.device)
        grid = (cdiv(B * T, TOKENS), H)
        kernels.forward[grid](kqq, A, S, out, B * T, T, H, M, S.shape[-1], **_tile(M, S.shape[-1]))
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        del output
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return _Gradient.apply(*ctx.saved_tensors, gradient)

    @staticmethod
    def vmap(
        info: Any, dims: tuple[int | None, ...], kqq: Tensor, A: Tensor, S: Tensor
    ) -> tuple[Tensor, int]:
        """Models side by side are more heads."""
        E = info.batch_size
        kqq, A, S = (_leading(x, d, E) for x, d in zip((kqq, A, S), dims, strict=True))  # [E, ...]
        out = _Variance.apply(_heads(kqq), _heads(A), S.flatten(0, 1))  # [B, E H, T, V]
        return out.unflatten(1, (E, -1)), 1


class _Gradient(torch.autograd.Function):
    """The gradients of kqq, A and S. Not differentiable again."""

    @staticmethod
    def forward(kqq: Tensor, A: Tensor, S: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        kqq, A, g = kqq.contiguous(), A.contiguous(), g.contiguous()
        B, H, M, T = A.shape
        V = S.shape[-1]
        dk, dA = torch.empty_like(kqq), torch.empty_like(A)
        shares = min(SHARES, cdiv(B * T, TOKENS))  # summed afterwards, always in the same order
        dS = torch.empty(shares, *S.shape, dtype=S.dtype, device=S.device)
        sizes = (B * T, T, H, M, V)
        kernels.backward_A[(cdiv(B * T, TOKENS), H)](kqq, A, S, g, dk, dA, *sizes, **_tile(M, V))
        kernels.backward_S[(M, H, shares)](A, g, dS, *sizes, **_tile(M, V))
        return dk, dA, dS.sum(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
        del ctx, inputs, output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError("the fused variance has no second derivative; plain_variance has")

    @staticmethod
    def vmap(
        info: Any, dims: tuple[int | None, ...], kqq: Tensor, A: Tensor, S: Tensor, g: Tensor
    ) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[int, int, int]]:
        """Models side by side are more heads."""
        E = info.batch_size
        kqq, A, S, g = (_leading(x, d, E) for x, d in zip((kqq, A, S, g), dims, strict=True))
        dk, dA, dS = _Gradient.apply(_heads(kqq), _heads(A), S.flatten(0, 1), _heads(g))
        return (dk.unflatten(1, (E, -1)), dA.unflatten(1, (E, -1)), dS.unflatten(0, (E, -1))), (1, 1, 0)


def _leading(x: Tensor, dim: int | None, size: int) -> Tensor:
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


def _heads(x: Tensor) -> Tensor:
    """[E, B, H, ...] -> [B, E H, ...]."""
    return x.transpose(0, 1).flatten(1, 2)


def _tile(M: int, V: int) -> dict[str, int]:
    """Sizes of tiles: powers of two, and 16 at least, as matrix units want them."""
    return {"TT": TOKENS, "MM": max(16, next_power_of_2(M)), "VV": max(16, next_power_of_2(V))}
