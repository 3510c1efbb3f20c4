"""Sentences as words: a learned embedding of each word and the features of a frozen language model."""

import torch
from torch import Tensor, nn

from sgpa.core.errors import InputError
from sgpa.core.inputs import Words
from sgpa.core.precision import recording, require_finite
from sgpa.models.config import WordsConfig
from sgpa.models.embeddings.tokens import WordTable, columns_in_use


class WordEmbedding(nn.Module):
    """token_t = W [γ Σ_l s_l h_tl ; e(w_t)] + b + p_t, s = softmax of learned scores (Peters et al. 2018).

    h are the language model's layers [B, T, L, F], e the learned words [B, T, E_w], p the positions [T, E].
    """

    def __init__(self, config: WordsConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.scores = nn.Parameter(torch.zeros(config.layers))  # equal shares at first      [L]
        self.gamma = nn.Parameter(torch.ones(()))
        self.words = WordTable(config, pad=0)
        self.project = nn.Linear(config.features + config.embedding_width, width)
        self.positions = nn.Parameter(0.1 * torch.randn(config.max_tokens, width))

    def forward(self, words: Words) -> tuple[Tensor, Tensor]:
        """Tokens [B, T, E] and the padding mask [B, T] (True at padding)."""
        self.check(words)
        words = self.trimmed(words)
        ids = words.ids
        tokens = self.project(torch.cat([self.mixed(words.layers), self.words(ids)], -1))  # [B, T, E]
        return tokens + self.positions[: ids.shape[1]], ids == 0

    def trimmed(self, words: Words, multiple: int = 1) -> Words:
        """The words without the columns that are padding in every row (`columns_in_use`)."""
        T = columns_in_use(words.ids == 0, multiple)
        return Words(words.ids[:, :T], words.layers[:, :T])

    def mixed(self, layers: Tensor) -> Tensor:
        """γ Σ_l s_l h_l: [B, T, L, F] -> [B, T, F]."""
        shares = self.gamma * self.scores.softmax(0)  # [L]
        return torch.einsum("btlf,l->btf", layers.to(shares.dtype), shares)

    def check(self, words: Words) -> None:
        """Raise an error of one line for sentences that cannot be embedded."""
        if not isinstance(words, Words):
            raise InputError(f"expected Words, got {type(words).__name__}")
        c, ids, layers = self.config, words.ids, words.layers
        expected = [*ids.shape, c.layers, c.features]
        if list(layers.shape) != expected:
            raise InputError(
                f"expected floating-point features of shape {expected}, got {layers.dtype} "
                f"{list(layers.shape)}"
            )
        if ids.shape[1] > c.max_tokens:
            raise InputError(f"{ids.shape[1]} words, but the model reads {c.max_tokens}; truncate")
        if recording(ids):
            return
        if ids.numel() and (ids.min() < 0 or ids.max() >= c.vocabulary):
            raise InputError(
                f"word ids {int(ids.min())}..{int(ids.max())} leave the vocabulary 0..{c.vocabulary - 1}"
            )
        require_finite(lambda: "word features that are NaN or infinite", layers)
