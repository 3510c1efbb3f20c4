"""Scaled dot-product attention (eq:sdp), the deterministic baseline."""

from torch import Tensor, nn

from sgpa.attention.base import Attention, Moments
from sgpa.types import Kl


class DotProductAttention(Attention):
    """softmax(q k' / √D) v for each head.

    >>> import torch
    >>> DotProductAttention(8, 2)(torch.randn(3, 5, 8)).value.shape
    torch.Size([3, 5, 8])
    """

    def __init__(self, embed_dim: int, num_heads: int, *, dropout: float = 0.0) -> None:
        super().__init__(embed_dim, num_heads, dropout=dropout)
        self.W_q = nn.Linear(embed_dim, embed_dim, bias=False)
        self.W_k = nn.Linear(embed_dim, embed_dim, bias=False)

    def moments(self, x: Tensor, padding: Tensor | None, state: object = None) -> Moments:
        """The softmax weights and the attended values."""
        del state
        q, k = self.heads(x, self.W_q), self.heads(x, self.W_k)  # [B, H, T, D]
        scores = q @ k.mT / self.head_width**0.5  # [B, H, T, T]
        if padding is not None:
            scores = scores.masked_fill(padding[:, None, None, :], -float("inf"))
        weights = scores.softmax(-1)
        return Moments(weights, weights @ self.heads(x, self.W_v), Kl.zero(x))
