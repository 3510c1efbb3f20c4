"""One row of numbers per answer: what calibration and novelty are made of."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sgpa.posthoc.layer_gps import LayerGps
from sgpa.posthoc.novelty import Evidence
from sgpa.posthoc.passes import Pass


@dataclass(frozen=True)
class Rows:
    """Answers of a model with what its layers showed; leading dimensions are [B], or [B, T] for tokens."""

    logits: Tensor  # [..., C]
    carried: Tensor  # variance that layers and head carry to an output, per unit of σ²   [..., L + 1]
    shares: Tensor  # variance that the GPs of each layer leave, mean over heads          [..., L]
    states: Tensor  # what attention reads in layers 2 to L, averaged over tokens         [..., L - 1, E]
    head: Tensor  # what the last layer reads                                             [..., E]
    tokens: Tensor  # variance that the GPs leave, mean over layers and heads, in [0, 1]  [B, T]

    def flat(self, keep: Tensor | None) -> list[Tensor]:
        """Columns logits, carried, shares, states and head, [N, ...]; `keep` [...] chooses rows."""
        lead = self.logits.ndim - 1
        columns = [self.logits, self.carried, self.shares, self.states, self.head.float()]
        return flat_rows(columns, lead, keep)


def read_rows(seen: Pass, gps: LayerGps) -> Rows:
    """The rows of one pass."""
    carried, shares, tokens = [], [], []
    for group in gps.groups:
        variance = group.variance(seen.queries)  # [B, T, L, H]
        rows = seen.rows(variance)  # [..., L, H]
        carried.append((rows * group.gain).sum(-1))
        shares.append(rows.mean(-1))
        tokens.append(variance.mean(-1).sum(-1))  # [B, T]
    return Rows(
        seen.logits,
        torch.cat([*carried, gps.head.variance(seen.head).unsqueeze(-1)], -1),
        torch.cat(shares, -1),
        pooled_states(seen),
        seen.head,
        torch.stack(tokens).sum(0) / len(gps.layers),
    )


def pooled_states(seen: Pass) -> Tensor:
    """What attention reads in layers 2 to L, [..., L - 1, E]; of one layer nothing."""
    states = [seen.rows(seen.states[i]).float() for i in range(1, len(seen.states))]
    return torch.stack(states, -2) if states else seen.rows(seen.states[0]).unsqueeze(-2)[..., :0, :].float()


def real_rows(seen: Pass) -> Tensor | None:
    """Which answers are not padding: None for all."""
    return None if not seen.per_token or seen.padding is None else ~seen.padding


def flat_rows(columns: Sequence[Tensor], lead: int, keep: Tensor | None) -> list[Tensor]:
    """Columns with `lead` leading dimensions as [N, ...]; `keep` chooses rows."""
    flat = [x.flatten(0, lead - 1) if lead > 1 else x for x in columns]
    return flat if keep is None else [x[keep.flatten()] for x in flat]


def as_evidence(shares: Tensor, states: Tensor, head: Tensor, logits: Tensor) -> Evidence:
    """Columns [N, ...] as what novelty is made of; a regressor's output has no energy."""
    energy = logits.logsumexp(-1) if logits.shape[-1] > 1 else torch.zeros_like(logits[:, 0])
    return Evidence(shares, states, head, energy)
