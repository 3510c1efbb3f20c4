"""The marginal variance of a decoupled layer without its [B, H, T, V M] intermediate.

var[t, v] = max(0, k_t - Σ_m a_mt²) + Σ_mn a_mt a_nt S_v[m, n],  S_v = s_v s_v'.

The quadratic form is a product of the outer products a_t a_t' [T, M M] with S [M M, V]. A tile of tokens makes
its outer products in registers, one row m at a time, and never writes them. S is formed once for all tokens.
The reference is `posteriors.plain_variance`.
"""

from typing import Any

import torch
from torch import Tensor

try:  # no Triton, no fast path: the reference is used
    import triton
    import triton.language as tl
except ImportError:  # pragma: no cover
    triton = None

TOKENS = 128  # of a tile


def fuses(A: Tensor, s: Tensor) -> bool:
    """Whether the fast path takes these: on a GPU, in float32, one factor for all sequences."""
    return triton is not None and A.is_cuda and A.dtype == torch.float32 and s.ndim == A.ndim


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
        grid = (triton.cdiv(B * T, TOKENS), H)
        _forward[grid](kqq, A, S, out, B * T, T, H, M, S.shape[-1], **_tile(M, S.shape[-1]))
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        del output
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
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
        dk, dA, dS = torch.empty_like(kqq), torch.empty_like(A), torch.empty_like(S)
        sizes = (B * T, T, H, M, V)
        _backward_A[(triton.cdiv(B * T, TOKENS), H)](kqq, A, S, g, dk, dA, *sizes, **_tile(M, V))
        _backward_S[(M, H)](A, g, dS, *sizes, **_tile(M, V))
        return dk, dA, dS

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
        del ctx, inputs, output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
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
    return {"TT": TOKENS, "MM": max(16, triton.next_power_of_2(M)), "VV": max(16, triton.next_power_of_2(V))}


if triton is not None:

    @triton.jit
    def _forward(kqq, A, S, out, N, T, H, M, V, TT: tl.constexpr, MM: tl.constexpr, VV: tl.constexpr):  # type: ignore[no-untyped-def]
        """out[t, v] for a tile of the N = B T tokens of a head."""
        h = tl.program_id(1)
        t = tl.program_id(0) * TT + tl.arange(0, TT)
        m, v = tl.arange(0, MM), tl.arange(0, VV)
        row = (t // T) * H + h  # which [M, T] matrix of A a token is in
        real = t < N
        a = tl.load(
            A + row[:, None] * M * T + m[None, :] * T + (t % T)[:, None],
            mask=real[:, None] & (m < M)[None, :],
            other=0.0,
        )  # [TT, MM]
        total = tl.zeros((TT, VV), dtype=tl.float32)
        for i in range(M):
            a_i = tl.load(A + row * M * T + i * T + t % T, mask=real, other=0.0)  # [TT]
            S_i = tl.load(
                S + ((h * M + i) * M + m[:, None]) * V + v[None, :],
                mask=(m < M)[:, None] & (v < V)[None, :],
                other=0.0,
            )  # [MM, VV]
            total += tl.dot(a_i[:, None] * a, S_i, input_precision="tf32x3")
        k = tl.load(kqq + row * T + t % T, mask=real, other=0.0)
        unexplained = tl.maximum(k - tl.sum(a * a, 1), 0.0)
        tl.store(
            out + (row * T + t % T)[:, None] * V + v[None, :],
            total + unexplained[:, None],
            mask=real[:, None] & (v < V)[None, :],
        )

    @triton.jit
    def _backward_A(
        kqq, A, S, g, dk, dA, N, T, H, M, V, TT: tl.constexpr, MM: tl.constexpr, VV: tl.constexpr
    ):  # type: ignore[no-untyped-def]
        """dA[n, t] = 2 Σ_m a_mt Σ_v S_v[m, n] g[t, v] - 2 a_nt Σ_v g[t, v] if k_t > Σ_m a_mt²."""
        h = tl.program_id(1)
        t = tl.program_id(0) * TT + tl.arange(0, TT)
        m, v = tl.arange(0, MM), tl.arange(0, VV)
        row = (t // T) * H + h
        real = t < N
        place = A + row[:, None] * M * T + m[None, :] * T + (t % T)[:, None]
        inside = real[:, None] & (m < M)[None, :]
        a = tl.load(place, mask=inside, other=0.0)  # [TT, MM]
        g_t = tl.load(
            g + (row * T + t % T)[:, None] * V + v[None, :], mask=real[:, None] & (v < V)[None, :], other=0.0
        )  # [TT, VV]
        total = tl.zeros((TT, MM), dtype=tl.float32)
        for i in range(M):
            a_i = tl.load(A + row * M * T + i * T + t % T, mask=real, other=0.0)  # [TT]
            S_i = tl.load(
                S + ((h * M + i) * M + m[None, :]) * V + v[:, None],
                mask=(m < M)[None, :] & (v < V)[:, None],
                other=0.0,
            )  # [VV, MM]
            total += a_i[:, None] * tl.dot(g_t, S_i, input_precision="tf32x3")
        k = tl.load(kqq + row * T + t % T, mask=real, other=0.0)
        each = tl.sum(g_t, 1) * tl.where(k - tl.sum(a * a, 1) > 0.0, 1.0, 0.0)  # [TT]
        tl.store(dk + row * T + t % T, each, mask=real)
        shift = row[:, None] * M * T + m[None, :] * T + (t % T)[:, None]
        tl.store(dA + shift, 2.0 * (total - a * each[:, None]), mask=inside)

    @triton.jit
    def _backward_S(A, g, dS, N, T, H, M, V, TT: tl.constexpr, MM: tl.constexpr, VV: tl.constexpr):  # type: ignore[no-untyped-def]
        """dS_v[i, n] = Σ_t a_it a_nt g[t, v] for one row i of a head, over all tokens."""
        i, h = tl.program_id(0), tl.program_id(1)
        m, v = tl.arange(0, MM), tl.arange(0, VV)
        total = tl.zeros((MM, VV), dtype=tl.float32)
        for start in range(0, N, TT):
            t = start + tl.arange(0, TT)
            row = (t // T) * H + h
            real = t < N
            a = tl.load(
                A + row[None, :] * M * T + m[:, None] * T + (t % T)[None, :],
                mask=real[None, :] & (m < M)[:, None],
                other=0.0,
            )  # [MM, TT]
            a_i = tl.load(A + row * M * T + i * T + t % T, mask=real, other=0.0)  # [TT]
            g_t = tl.load(
                g + (row * T + t % T)[:, None] * V + v[None, :],
                mask=real[:, None] & (v < V)[None, :],
                other=0.0,
            )  # [TT, VV]
            total += tl.dot(a * a_i[None, :], g_t, input_precision="tf32x3")
        tl.store(
            dS + ((h * M + i) * M + m[:, None]) * V + v[None, :],
            total,
            mask=(m < M)[:, None] & (v < V)[None, :],
        )
