"""All rows of a data set, as a model and its GPs see them; and their logits with dropout on."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sgpa.models.modes import evaluating
from sgpa.posthoc.attached import AttachedGp
from sgpa.posthoc.calls import logits_of, read_batch
from sgpa.posthoc.passes import Pass, dropout_modules
from sgpa.posthoc.rows import read_rows
from sgpa.posthoc.statistics import device_of
from sgpa.posthoc.views import viewed_layers


@dataclass(frozen=True)
class Collected:
    """All rows of a data set, on the CPU."""

    logits: Tensor  # [N, C]
    carried: Tensor  # variance that layers and head carry to an output, per unit of σ²   [N, L + 1]
    layers: Tensor  # what attention reads in layers 2 to L, averaged over tokens         [N, L', E]
    head: Tensor  # what the last layer reads                                             [N, E]
    novelty: Tensor  # the score whose percentile is the novelty                          [N]
    targets: Tensor | None = None  # [N]


@torch.no_grad()
def collect(gp: AttachedGp, batches: Iterable[Any]) -> Collected:
    """What the model and its GPs show of every row; one pass.

    Args:
        gp: fitted and calibrated, on a model with one answer per row.
        batches: as for `AttachedGp.fit`; with labels, `targets` has them.
    """
    model, adapter = gp._attached("collect"), gp._ready("collect")
    columns: list[list[Tensor]] = []
    targets: list[Tensor] = []
    for batch in batches:
        call = read_batch(batch, device_of(model))
        placed = adapter.on(device_of(model))
        seen = gp._observe(model, call)
        rows = read_rows(seen, placed.gps, placed.novelty.views)
        score = placed.novelty.score(rows.views)
        columns.append([rows.logits, rows.carried, pooled_states(seen), seen.head.float(), score])
        if call.targets is not None:
            targets.append(call.targets.cpu())
    logits, carried, layers, head, score = (
        torch.cat([x.cpu() for x in column]) for column in zip(*columns, strict=True)
    )
    return Collected(logits, carried, layers, head, score, torch.cat(targets) if targets else None)


def pooled_states(seen: Pass) -> Tensor:
    """What attention reads in the layers that novelty looks at, averaged over tokens, [B, L', E]."""
    layers = viewed_layers(len(seen.states))
    return torch.stack([seen.rows(seen.states[i]).float() for i in layers], 1)


@torch.no_grad()
def dropout_logits(model: nn.Module, batches: Iterable[Any], samples: int = 10, seed: int = 0) -> Tensor:
    """Logits of passes with dropout layers on, [S, N, C] on the CPU."""
    parts = []
    with torch.random.fork_rng(), evaluating(model):
        torch.manual_seed(seed)
        for module in dropout_modules(model):
            module.training = True
        for batch in batches:
            call = read_batch(batch, device_of(model))
            parts.append(torch.stack([logits_of(call(model), model) for _ in range(samples)]).cpu())
    return torch.cat(parts, 1)
