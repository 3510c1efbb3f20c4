"""Sequences of features of a frozen network."""

import torch
from torch import Tensor, nn

from sgpa.core.errors import InputError
from sgpa.core.inputs import Features
from sgpa.core.noise import Dropout
from sgpa.core.precision import require_finite
from sgpa.models.config import FeatureConfig
from sgpa.models.embeddings.tokens import columns_in_use


class FeatureEmbedding(nn.Module):
    """token_t = W LN(x_t) + b, [B, T, F] -> [B, T, E]; LN makes networks of any scale alike.

    Positions are those of the attention's kernel, where it is position-aware: what a frozen network says of
    a token depends on its surroundings already.
    """

    def __init__(self, config: FeatureConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.norm = nn.LayerNorm(config.width, elementwise_affine=False)
        self.drop = Dropout(config.drop)
        self.project = nn.Linear(config.width, width)

    def forward(self, inputs: Tensor | Features) -> tuple[Tensor, Tensor]:
        """Tokens [B, T, E] and the padding mask [B, T] (True at padding)."""
        rows = self.checked(inputs)
        rows = self.trimmed(rows)
        x = rows.values.to(self.project.weight.dtype).masked_fill(rows.padding.unsqueeze(-1), 0.0)
        require_finite(lambda: "features that are NaN or infinite; drop these rows or fill them in", x)
        x = self.norm(x)
        if self.drop.active:
            x = x * self.drop(torch.ones_like(x[..., :1]))
        return self.project(x), rows.padding

    def trimmed(self, inputs: Tensor | Features, multiple: int = 1) -> Features:
        """The rows without the columns that are padding in all of them (`columns_in_use`)."""
        rows = inputs if isinstance(inputs, Features) else Features.of(inputs)
        T = columns_in_use(rows.padding, multiple)
        return Features(rows.values[:, :T], rows.padding[:, :T])

    def checked(self, inputs: Tensor | Features) -> Features:
        """The rows, a tensor as rows without padding; raises an error of one line for what cannot be read."""
        if not isinstance(inputs, Tensor | Features):
            raise InputError(f"expected Features or a tensor [N, T, F], got {type(inputs).__name__}")
        rows = inputs if isinstance(inputs, Features) else Features.of(inputs)
        T, F = rows.values.shape[1:]
        if self.config.width != F:
            raise InputError(f"{F} features of a token, but the model reads {self.config.width}")
        if self.config.max_tokens < T:
            raise InputError(f"{T} tokens, but the model reads {self.config.max_tokens}; truncate")
        return rows
