"""Texts as sequences of token ids."""

import torch
from torch import Tensor, nn

from sgpa.core.errors import InputError
from sgpa.core.noise import Dropout, sharded
from sgpa.core.precision import recording
from sgpa.models.config import TokenConfig, WordsConfig


def columns_in_use(padding: Tensor, multiple: int = 1) -> int:
    """The number of columns of a padded batch [B, T] up to the longest row, rounded up to a multiple.

    All T while a step is captured, where the batch is a share of a larger one, and where padding is not at
    the end of rows.
    """
    if recording(padding) or sharded():
        return padding.shape[1]
    longest = int((~padding).sum(1).max()) if len(padding) else 0
    if longest == 0 or not bool(padding[:, longest:].all()):
        return padding.shape[1]
    return min(padding.shape[1], -(-longest // multiple) * multiple)


class WordTable(nn.Embedding):
    """Embeddings of standard deviation `scale`, zero for padding; dropout removes whole words."""

    def __init__(self, config: TokenConfig | WordsConfig, pad: int) -> None:
        super().__init__(config.vocabulary, config.embedding_width, padding_idx=pad)
        with torch.no_grad():
            self.weight.mul_(config.scale)
        self.drop = Dropout(config.drop)

    def forward(self, ids: Tensor) -> Tensor:
        """[B, T] -> [B, T, E]."""
        words = super().forward(ids)
        return words * self.drop(torch.ones_like(words[..., :1])) if self.drop.active else words


class TokenEmbedding(nn.Module):
    """Token plus position embeddings: ids [B, T] -> [B, T, E], padding where the id is `pad`."""

    def __init__(self, config: TokenConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.tokens = WordTable(config, config.pad)
        self.positions = nn.Parameter(0.1 * torch.randn(config.max_tokens, config.embedding_width))
        same = config.embedding_width == width
        self.project = nn.Identity() if same else nn.Linear(config.embedding_width, width)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens and the padding mask (True at padding)."""
        self.check(ids)
        ids = self.trimmed(ids)
        tokens = self.project(self.tokens(ids) + self.positions[: ids.shape[1]])
        return tokens, ids == self.config.pad

    def trimmed(self, ids: Tensor, multiple: int = 1) -> Tensor:
        """The ids without the columns that are padding in every row (`columns_in_use`)."""
        return ids[:, : columns_in_use(ids == self.config.pad, multiple)]

    def check(self, ids: Tensor) -> None:
        """Raise an error of one line for ids that cannot be embedded."""
        if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.is_floating_point():
            shape = f"{ids.dtype} {list(ids.shape)}" if isinstance(ids, Tensor) else type(ids).__name__
            raise InputError(f"expected integer token ids of shape [B, T], got {shape}")
        if ids.shape[1] > self.config.max_tokens:
            raise InputError(f"{ids.shape[1]} tokens, but the model reads {self.config.max_tokens}; truncate")
        if recording(ids):
            return
        if ids.numel() and (ids.min() < 0 or ids.max() >= self.config.vocabulary):
            raise InputError(
                f"token ids {int(ids.min())}..{int(ids.max())} leave the vocabulary "
                f"0..{self.config.vocabulary - 1}"
            )
