"""Scaled dot-product attention (eq:sdp), the deterministic baseline."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from sgpa.attention.base import Attention, Moments
from sgpa.core.types import Kl


class DotProductAttention(Attention):
    """softmax(q k' / √D) v for each head; on a GPU by torch's fused attention, which writes no weights.

    On a CPU the fused attention gains little time, and its backward pass, which computes the scores again,
    gives NaN where they are so large (about 1e9) that the exponential of their rounding error overflows.

    >>> DotProductAttention(8, 2)(torch.randn(3, 5, 8)).value.shape
    torch.Size([3, 5, 8])
    """

    def __init__(self, embed_dim: int, num_heads: int, *, dropout: float = 0.0) -> None:
        super().__init__(embed_dim, num_heads, dropout=dropout)
        self.W_q = nn.Linear(embed_dim, embed_dim, bias=False)
        self.W_k = nn.Linear(embed_dim, embed_dim, bias=False)

    def moments(self, x: Tensor, padding: Tensor | None, state: object = None) -> Moments:
        """The attended values."""
        del state
        if not x.is_cuda:
            return Moments(self.weights(x, padding) @ self.heads(x, self.W_v), Kl.zero(x))
        q, k, v = (self.heads(x, W) for W in (self.W_q, self.W_k, self.W_v))  # [B, H, T, D]
        real = None if padding is None else ~padding[:, None, None, :]  # [B, 1, 1, T]
        return Moments(attend(q, k, v, real), Kl.zero(x))

    def weights(self, x: Tensor, padding: Tensor | None) -> Tensor:
        """softmax(q k' / √D), zero at padding."""
        q, k = self.heads(x, self.W_q), self.heads(x, self.W_k)  # [B, H, T, D]
        scores = q @ k.mT / self.head_width**0.5  # [B, H, T, T]
        if padding is not None:
            scores = scores.masked_fill(padding[:, None, None, :], -float("inf"))
        return scores.softmax(-1)


def attend(q: Tensor, k: Tensor, v: Tensor, real: Tensor | None) -> Tensor:
    """Fused softmax(q k' / √D) v over the keys at which `real` [B, 1, 1, T] is True: [B, H, T, V]."""
    if torch._C._functorch.is_batchedtensor(q):
        return _SideBySide.apply(q, k, v, real)
    return scaled_dot_product_attention(q, k, v, attn_mask=real)


class _SideBySide(torch.autograd.Function):
    """Attention under `torch.vmap`: models side by side are a larger batch.

    torch's own rules loop over the models on a CPU, and on a GPU leave out what the backward pass needs,
    because a tensor inside `vmap` does not say that a gradient will be wanted.
    """

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, real: Tensor | None) -> Tensor:
        raise NotImplementedError("only under vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor | None, ...], output: Tensor) -> None:
        raise NotImplementedError("only under vmap")

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *inputs: Tensor | None) -> tuple[Tensor, int]:
        """[E, B, ...] is [E B, ...] for a while; gradients are those of the operations in here."""
        E = info.batch_size
        q, k, v, real = (_fold(x, dim, E) for x, dim in zip(inputs, dims, strict=True))
        assert q is not None
        assert k is not None
        assert v is not None
        return attend(q, k, v, real).unflatten(0, (E, -1)), 0


def _fold(x: Tensor | None, dim: int | None, size: int) -> Tensor | None:
    if x is None:
        return None
    return (x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)
