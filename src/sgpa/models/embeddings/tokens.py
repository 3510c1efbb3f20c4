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


def grouped(x: Tensor, padding: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Means of `group` neighbouring tokens, those of padding left out: [B, T, E] -> [B, T / group, E].

    Args:
        x: Tokens, zero at padding.
        padding: True at padding, [B, T].
        group: Tokens of a group; the last group may be smaller.

    Returns:
        The means, and where a group has padding only.
    """
    missing = -x.shape[1] % group
    x = torch.nn.functional.pad(x, (0, 0, 0, missing)).unflatten(1, (-1, group))  # [B, G, group, E]
    real = ~torch.nn.functional.pad(padding, (0, missing), value=True).unflatten(1, (-1, group))
    count = real.sum(-1, keepdim=True)  # [B, G, 1]
    return x.sum(2) / count.clamp_min(1), count.squeeze(-1) == 0


class TokenEmbedding(nn.Module):
    """Token plus position embeddings: ids [B, T] -> [B, T, E], padding where the id is `pad`.

    With `group` G the means of G tokens are the tokens of the model, [B, T / G, E], with a position each.
    """

    def __init__(self, config: TokenConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.tokens = WordTable(config, config.pad)
        self.positions = nn.Parameter(0.1 * torch.randn(*config.grid, config.embedding_width))
        same = config.embedding_width == width
        self.project = nn.Identity() if same else nn.Linear(config.embedding_width, width)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens and the padding mask (True at padding)."""
        self.check(ids)
        ids = self.trimmed(ids)
        tokens, padding = self.tokens(ids), ids == self.config.pad  # [B, T, E], [B, T]
        if self.config.group > 1:
            tokens, padding = grouped(tokens, padding, self.config.group)
        return self.project(tokens + self.positions[: tokens.shape[1]]), padding

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
