"""All rows of a data set, as a model and its GPs see them; and their logits with dropout on."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sgpa.models.modes import evaluating
from sgpa.posthoc.attached import AttachedGp
from sgpa.posthoc.calls import logits_of, read_batch
from sgpa.posthoc.passes import Pass, dropout_modules, observe
from sgpa.posthoc.rows import read_rows
from sgpa.posthoc.statistics import device_of
from sgpa.posthoc.views import viewed_layers


@dataclass(frozen=True)
class Seen:
    """What the GPs show of all rows of a data set, on the CPU."""

    carried: Tensor  # variance that layers and head carry to an output, per unit of σ²   [N, L + 1]
    layers: Tensor  # what attention reads in layers 2 to L, averaged over tokens         [N, L', E]
    novelty: Tensor  # the score whose percentile is the novelty                          [N]


@dataclass(frozen=True)
class Collected:
    """All rows of a data set, on the CPU."""

    logits: Tensor  # [N, C]
    head: Tensor  # what the last layer reads                                             [N, E]
    gp: Seen | None = None  # None where no GP is attached
    targets: Tensor | None = None  # [N]


@torch.no_grad()
def collect(model: nn.Module, head: nn.Module, gp: AttachedGp | None, batches: Iterable[Any]) -> Collected:
    """What a model and its GPs show of every row; one pass.

    Args:
        model: a model with one answer per row.
        head: the linear layer that makes its outputs.
        gp: fitted and calibrated on the model; None where there is none.
        batches: as for `AttachedGp.fit`; with labels, `targets` has them.
    """
    device, sites = device_of(model), () if gp is None else gp._sites
    placed = None if gp is None else gp._ready("collect").on(device)
    plain: list[tuple[Tensor, ...]] = []
    shown: list[tuple[Tensor, ...]] = []
    targets: list[Tensor] = []
    for batch in batches:
        call = read_batch(batch, device)
        seen = observe(model, sites, head, call)
        plain.append((seen.logits, seen.head.float()))
        if placed is not None:
            rows = read_rows(seen, placed.gps, placed.novelty.views)
            shown.append((rows.carried, pooled_states(seen), placed.novelty.score(rows.views)))
        if call.targets is not None:
            targets.append(call.targets.cpu())
    logits, features = _joined(plain)
    return Collected(
        logits, features, Seen(*_joined(shown)) if shown else None, torch.cat(targets) if targets else None
    )


def _joined(batches: list[tuple[Tensor, ...]]) -> list[Tensor]:
    """Columns of all batches, on the CPU."""
    return [torch.cat([x.cpu() for x in column]) for column in zip(*batches, strict=True)]


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
