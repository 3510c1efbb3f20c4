"""One row of numbers per answer: what calibration and novelty are made of."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sgpa.posthoc.layer_gps import LayerGps
from sgpa.posthoc.passes import Pass
from sgpa.posthoc.views import Views


@dataclass(frozen=True)
class AnswerRows:
    """Answers of a model with what its layers showed; leading dimensions are [B], or [B, T] for tokens."""

    logits: Tensor  # [..., C]
    carried: Tensor  # variance that layers and head carry to an output, per unit of σ²   [..., L + 1]
    shares: Tensor  # variance that the GPs of each layer leave, mean over heads          [..., L]
    views: Tensor  # columns of novelty                                                   [..., K]
    tokens: Tensor  # variance that the GPs leave, mean over layers and heads, in [0, 1]  [B, T]

    def flat(self, keep: Tensor | None) -> list[Tensor]:
        """Columns logits, carried and views, [N, ...]; `keep` [...] chooses rows."""
        return flat_rows([self.logits, self.carried, self.views], self.logits.ndim - 1, keep)


def read_rows(seen: Pass, gps: LayerGps, views: Views) -> AnswerRows:
    """The rows of one pass."""
    carried, shares, tokens = [], [], []
    for group in gps.groups:
        variance = group.variance(seen.queries)  # [B, T, L, H]
        rows = seen.rows(variance)  # [..., L, H]
        carried.append((rows * group.gain).sum(-1))
        shares.append(rows.mean(-1))
        tokens.append(variance.mean(-1).sum(-1))  # [B, T]
    head = gps.head.variance(seen.head)  # [...]
    return AnswerRows(
        seen.logits,
        torch.cat([*carried, head.unsqueeze(-1)], -1),
        torch.cat(shares, -1),
        views.columns(seen, head),
        torch.stack(tokens).sum(0) / len(gps.layers),
    )


def real_rows(seen: Pass) -> Tensor | None:
    """Which answers are not padding: None for all."""
    return None if not seen.per_token or seen.padding is None else ~seen.padding


def flat_rows(columns: Sequence[Tensor], lead: int, keep: Tensor | None) -> list[Tensor]:
    """Columns with `lead` leading dimensions as [N, ...]; `keep` chooses rows."""
    flat = [x.flatten(0, lead - 1) if lead > 1 else x for x in columns]
    return flat if keep is None else [x[keep.flatten()] for x in flat]
