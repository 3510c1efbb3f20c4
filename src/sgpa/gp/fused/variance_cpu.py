"""The marginal variance of a decoupled layer on the CPU, without its [B, H, T, V M] intermediate.

var[t, v] = max(0, k_t - Σ_m a_mt²) + Σ_mn a_mt a_nt S_v[m, n],  S_v = s_v s_v'.

The quadratic form is a product of the outer products a_t a_t' with S. Both are symmetric, so that half of
them is enough: a band of rows i <= m < j goes with the columns n < j, and what lies left of its square on the
diagonal (n < i) counts twice. One band of the outer products is computed at a time, for as many tokens as fit
the cache; the backward pass computes it again. The reference is `posteriors.marginal_variance`.

Both passes are custom operators, which a traced or compiled step calls as a whole.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

ROWS = 4  # of a band: wider ones waste more products and sum more terms at once, which costs precision
BLOCK = 1 << 21  # entries of a band for all tokens of a block: 8 MB in float32

Band = tuple[int, int, Tensor]  # rows i to j - 1, and S there


def blocked_variance(kqq: Tensor, A: Tensor, s: Tensor) -> Tensor:
    """`marginal_variance` of kqq [B, H, T], A [B, H, M, T] and s [H, V, M, M], as [B, H, T, V]."""
    return _variance(kqq, A, s @ s.mT)


@torch.library.custom_op("sgpa::variance_cpu", mutates_args=())
def _variance(kqq: Tensor, A: Tensor, S: Tensor) -> Tensor:
    """The variance given S [H, V, M, M], of which only the bands are read."""
    (B, H, M, T), V = A.shape, S.shape[1]
    a, bands = (
        A.permute(1, 2, 0, 3).reshape(H, M, B * T),
        _bands(S, 2),
    )  # the tokens of all sequences in a row
    learned = A.new_zeros(H, B * T, V)
    for h, t, x, room in _blocks(a, bands):
        for (i, j, S_ij), outer in zip(bands, room, strict=True):
            torch.mul(x[:, i:j, None], x[:, None, :j], out=outer)  # [h, j - i, j, n]
            learned[h, t] += torch.bmm(outer.flatten(1, 2).mT, S_ij[h])  # short sums: precise
    unexplained = (kqq - A.square().sum(-2)).clamp_min(0).unsqueeze(-1)  # [B, H, T, 1]
    return torch.add(learned.view(H, B, T, V).transpose(0, 1), unexplained, out=A.new_empty(B, H, T, V))


@torch.library.custom_op("sgpa::variance_cpu_gradient", mutates_args=())
def _gradient(kqq: Tensor, A: Tensor, S: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of kqq, A and the bands of S. For each token, with C[m, n] = Σ_v g_v S_v[m, n],

    dk = Σ_v g_v if k > Σ_m a_m², otherwise 0;  dA[m] = 2 (Σ_n C[m, n] a_n - a_m dk);
    dS_v[m, n] = g_v a_m a_n, twice that left of the squares, and summed over tokens.
    """
    (B, H, M, T), V = A.shape, S.shape[1]
    a, bands = A.permute(1, 2, 0, 3).reshape(H, M, B * T), _bands(S, 1)
    g_t = g.transpose(0, 1).reshape(H, B * T, V)
    Ca, dS = torch.empty_like(a), [torch.zeros_like(S_ij) for _, _, S_ij in bands]
    for h, t, x, room in _blocks(a, bands):
        Cx, g_x = Ca[h, :, t], g_t[h, t]  # [h, M, n], [h, n, V]
        for (i, j, S_ij), dS_ij, C in zip(bands, dS, room, strict=True):
            outer = torch.mul(x[:, i:j, None], x[:, None, :j], out=C).flatten(1, 2)  # [h, (j - i) j, n]
            dS_ij[h].baddbmm_(outer, g_x)
            torch.bmm(S_ij[h], g_x.mT, out=outer)  # writes C  [h, j - i, j, n]
            torch.sum(C * x[:, None, :j], 2, out=Cx[:, i:j])
            Cx[:, :i] += (C[:, :, :i] * x[:, i:j, None]).sum(1)  # C left of its square, mirrored
    dk = g.sum(-1) * (kqq > A.square().sum(-2))
    dA = torch.mul(A, -dk.unsqueeze(-2), out=A.new_empty(A.shape))
    dA.add_(Ca.view(H, M, B, T).permute(2, 0, 1, 3)).mul_(2)
    full = S.new_zeros(S.shape)
    for (i, j, _), dS_ij in zip(bands, dS, strict=True):
        full[:, :, i:j, :j] = dS_ij.unflatten(1, (j - i, j)).permute(0, 3, 1, 2)
        full[:, :, i:j, :i] *= 2
    return dk, dA, full


def _bands(S: Tensor, left: int) -> list[Band]:
    """i, j and the band of S as [H, (j - i) j, V], with `left` times what lies left of its square."""
    S, M = S.permute(0, 2, 3, 1), S.shape[-1]
    rows = [(i, min(i + ROWS, M)) for i in range(0, M, ROWS)]
    return [(i, j, torch.cat([left * S[:, i:j, :i], S[:, i:j, i:j]], 2).flatten(1, 2)) for i, j in rows]


def _blocks(a: Tensor, bands: Sequence[Band]) -> Iterator[tuple[slice, slice, Tensor, list[Tensor]]]:
    """The heads h and tokens t of each block, a[h, :, t], and memory for each band's outer products.

    A block has several whole heads where they fit. All bands and blocks share one memory.
    """
    H, M, N = a.shape
    heads = min(H, max(1, BLOCK // max(1, ROWS * M * N)))
    tokens = max(1, min(N, BLOCK // (heads * ROWS * M)))
    memory = a.new_empty(heads * ROWS * M * tokens)
    for first in range(0, H, heads):
        for start in range(0, N, tokens):
            h, t = slice(first, first + heads), slice(start, start + tokens)
            x = a[h, :, t]  # [h, M, n]
            shapes = [(len(x), j - i, j, x.shape[-1]) for i, j, _ in bands]
            yield h, t, x, [memory[: math.prod(shape)].view(shape) for shape in shapes]


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return _gradient(*ctx.saved_tensors, g)


def _no_backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
    raise NotImplementedError(
        "the blocked variance has no second derivative; posteriors.marginal_variance has"
    )


_variance.register_fake(lambda kqq, A, S: A.new_empty(*kqq.shape, S.shape[1]))
_variance.register_autograd(_backward, setup_context=_save)
_gradient.register_fake(lambda *inputs: tuple(x.new_empty(x.shape) for x in inputs[:3]))
_gradient.register_autograd(_no_backward)
