"""One vector per input from every layer of a model, in one deterministic pass."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sgpa.attention.base import mask_tokens
from sgpa.core.errors import InputError
from sgpa.core.inputs import Inputs
from sgpa.core.noise import Draw, source
from sgpa.models.batches import in_batches
from sgpa.models.modes import evaluating
from sgpa.models.transformer import Transformer


@dataclass(frozen=True)
class PooledFeatures:
    """What a model makes of each input, tokens averaged.

    The first layer is left out: its states are those of single tokens, and tokens of unfamiliar inputs are
    often familiar one by one.
    """

    layers: Tensor  # outputs of layers 2 to L, averaged over real tokens           [N, L - 1, E]
    head: Tensor  # what the last layer reads                                       [N, E]
    logits: Tensor | None = None  # of classes; None where numbers are predicted     [N, C]

    def __post_init__(self) -> None:
        for name, value in (("layers", self.layers), ("head", self.head), ("logits", self.logits)):
            if value is not None and not value.isfinite().all():
                raise InputError(f"features: the model's {name} are not finite")

    def __len__(self) -> int:
        return len(self.head)

    @staticmethod
    def joined(parts: Sequence["PooledFeatures"]) -> "PooledFeatures":
        """The rows of all parts, one part after the other."""
        logits = [part.logits for part in parts if part.logits is not None]
        return PooledFeatures(
            torch.cat([part.layers for part in parts]),
            torch.cat([part.head for part in parts]),
            torch.cat(logits) if logits else None,
        )


class _Means:
    """A source of random numbers for a pass through posterior means: every normal number is zero."""

    def take(self, draw: Draw) -> Tensor:
        """Zeros, or what dropout masks are made of."""
        if draw.keep is not None:
            return draw.fresh()
        return torch.zeros(draw.shape, dtype=draw.dtype, device=draw.device)


@torch.no_grad()
def pooled_features(model: Transformer, inputs: Inputs, *, batch_size: int | None = None) -> PooledFeatures:
    """Features of all rows, from a pass through the posterior means, without dropout.

    Args:
        model: any Transformer of this library.
        inputs: as `Transformer.predict` takes them.
        batch_size: rows at a time; by default what `predict` uses.

    Returns:
        One row per input, on the CPU.
    """
    classes = model.config.likelihood == "categorical"
    states = model.global_state()

    def flat(rows: Inputs) -> Tensor:  # [B, L E + C]
        inner, padding, value = [], None, None
        for _, _, padding, out in model.run_layers(rows, states):
            value = out.value
            inner.append(_mean_over_tokens(value, padding))
        assert value is not None
        head = model.pooled(model.norm(model.mlp(value)), padding)  # [B, E]
        return torch.cat([*inner[1:], head, *([model.head(head)] if classes else [])], -1).cpu()

    with evaluating(model), source(_Means()):
        rows = torch.cat(list(in_batches(model, flat, inputs, rows=batch_size)))
    depth, width = model.config.depth, model.config.width
    inner, head, logits = rows.split([(depth - 1) * width, width, rows.shape[1] - depth * width], -1)
    return PooledFeatures(inner.unflatten(-1, (depth - 1, width)), head, logits if classes else None)


def _mean_over_tokens(x: Tensor, padding: Tensor | None) -> Tensor:
    """[B, T, E] -> [B, E]."""
    if padding is None:
        return x.mean(1)
    return mask_tokens(x, padding).sum(1) / (~padding).sum(1, keepdim=True).clamp_min(1)
