"""Scaled dot-product attention (eq:sdp), the deterministic baseline."""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from sgpa.attention import backend
from sgpa.attention.base import Attention
from sgpa.attention.masks import Mask
from sgpa.attention.moments import Moments
from sgpa.core.arguments import checked
from sgpa.core.types import Kl


class DotProductAttention(Attention):
    """softmax(q k' / √D) v for each head.

    On a GPU torch's fused attention computes it, which writes no weights. On a CPU that gains little time,
    and its backward pass, which computes the scores again, gives NaN where they are so large (about 1e9) that
    the exponential of their rounding error overflows.

    Args:
        embed_dim: E, the width of tokens.
        num_heads: H, which divides E.
        dropout: probability of dropout on the output.

    Returns:
        `AttentionOutput` with value [B, T, E] for x [B, T, E], and a KL of zero.

    >>> DotProductAttention(8, 2)(torch.randn(3, 5, 8)).value.shape
    torch.Size([3, 5, 8])
    """

    @checked
    def __init__(self, embed_dim: int, num_heads: int, *, dropout: float = 0.0) -> None:
        super().__init__(embed_dim, num_heads, dropout=dropout)
        self.W_q = nn.Linear(embed_dim, embed_dim, bias=False)
        self.W_k = nn.Linear(embed_dim, embed_dim, bias=False)

    def moments(
        self, x: Tensor, padding: Tensor | None, state: object = None, mask: Mask | None = None
    ) -> Moments:
        """The attended values; a token that sees no key has the value zero."""
        del state
        if not backend.fuses_softmax(x) or mask is not None:
            return Moments(self.weights(x, padding, mask) @ self.heads(x, self.W_v), Kl.zero(x))
        q, k, v = (self.heads(x, W) for W in (self.W_q, self.W_k, self.W_v))  # [B, H, T, D]
        real = None if padding is None else ~padding[:, None, None, :]  # [B, 1, 1, T]
        return Moments(scaled_dot_product_attention(q, k, v, attn_mask=real), Kl.zero(x))

    def weights(self, x: Tensor, padding: Tensor | None, mask: Mask | None = None) -> Tensor:
        """softmax(q k' / √D), zero at padding and at hidden keys."""
        q, k = self.heads(x, self.W_q), self.heads(x, self.W_k)  # [B, H, T, D]
        scores = q @ k.mT / self.head_width**0.5  # [B, H, T, T]
        if mask is not None:  # the lowest number instead of -inf: rows without a key stay finite
            hidden = mask.hidden if padding is None else mask.hidden | padding[:, None, None, :]
            lowest = torch.finfo(scores.dtype).min
            return scores.masked_fill(hidden, lowest).softmax(-1).masked_fill(hidden, 0.0)
        if padding is not None:
            scores = scores.masked_fill(padding[:, None, None, :], -float("inf"))
        return scores.softmax(-1)
