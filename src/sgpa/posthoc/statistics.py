"""One pass over training data, without labels: GPs of every head, of what novelty looks at, and gains."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from sgpa.core.errors import InputError
from sgpa.posthoc.calls import Call, read_batch
from sgpa.posthoc.feature_gp import FeatureGp
from sgpa.posthoc.gains import measure_gains
from sgpa.posthoc.head_gps import HeadGps
from sgpa.posthoc.passes import Pass, find_head, observe
from sgpa.posthoc.reservoir import Reservoir
from sgpa.posthoc.rows import flat_rows, real_rows
from sgpa.posthoc.sites import Site
from sgpa.posthoc.views import Views

MAX_TOKENS = 4096  # tokens that inducing points are made of
MAX_ROWS = 2000  # rows that inducing points are made of
GAIN_ROWS = 64  # rows that gains are measured on


@dataclass(frozen=True)
class Statistics:
    """What one pass over training data gave."""

    head: nn.Module
    gps: tuple[HeadGps, ...]
    head_gp: FeatureGp
    views: Views
    share: float  # length-scale in units of the median distance of queries


class Spread:
    """Standard deviation of heads' outputs over tokens, accumulated batch by batch."""

    def __init__(self) -> None:
        self.count, self.sum, self.square = 0.0, torch.zeros(()), torch.zeros(())

    def add(self, o: Tensor, real: Tensor | None) -> None:
        """Outputs [B, T, H, V]; `real` [B, T] leaves padding out."""
        x = (o.flatten(0, 1) if real is None else o[real]).double()  # [N, H, V]
        self.count += len(x)
        self.sum, self.square = self.sum.to(x) + x.sum(0), self.square.to(x) + x.square().sum(0)

    def result(self) -> Tensor:
        """The standard deviation of every output, [H, V]."""
        mean = self.sum / self.count
        return (self.square / self.count - mean.square()).clamp_min(1e-12).sqrt().float()


@torch.no_grad()
def fit_statistics(
    model: nn.Module,
    sites: tuple[Site, ...],
    loader: Iterable[Any],
    *,
    head: nn.Module | None,
    points: int,
    share: float,
    max_batches: int | None,
) -> Statistics:
    """Run the model over the loader once.

    Args:
        model: the model.
        sites: its attention modules.
        loader: batches, see `read_batch`.
        head: the linear layer that makes its outputs; searched where it is None.
        points: M, inducing queries of every head.
        share: length-scale in units of the median distance of queries.
        max_batches: batches to read; all where it is None.
    """
    device = device_of(model)
    tokens, rows = Reservoir(MAX_TOKENS), Reservoir(MAX_ROWS)
    spreads = [Spread() for _ in sites]
    first: list[Call] = []
    count, classes = 0, False
    for batch in islice(loader, max_batches):
        call = read_batch(batch, device)
        head = head or find_head(model, call)
        outputs: dict[int, Tensor] = {}
        seen = observe(model, sites, head, call, on_heads=outputs.__setitem__)
        real = None if seen.padding is None else ~seen.padding
        for i, spread in enumerate(spreads):
            spread.add(outputs[i], real)
        every = [*_in_order(seen.queries), *_in_order(seen.states)]
        tokens.add([x.flatten(0, 1) if real is None else x[real] for x in every])
        _add_rows(rows, seen)
        if count < GAIN_ROWS:
            first.append(call)
        count, classes = count + len(seen.logits), seen.logits.shape[-1] > 1
    if head is None:
        raise InputError("fit: the loader yields no batch")
    if len(tokens) < 2 * points:
        raise InputError(
            f"fit: {len(tokens)} tokens for {points} inducing points (at least {2 * points} are needed)"
        )
    deviations = [each.result().to(device) for each in spreads]
    gains = measure_gains(model, sites, head, first, deviations)
    queries, states = tokens.columns()[: len(sites)], tokens.columns()[len(sites) :]
    gps = tuple(
        HeadGps.fit(q.to(device), s, g, points=points, share=share, name=site.name)
        for q, s, g, site in zip(queries, deviations, gains, sites, strict=True)
    )
    features, *pooled = rows.columns()
    views = Views.fit(states, pooled, points=points, classes=classes, device=device)
    return Statistics(head, gps, FeatureGp.fit(features.to(device)), views, share)


def device_of(model: nn.Module) -> torch.device:
    """Where the parameters are."""
    return next(model.parameters()).device


def _add_rows(rows: Reservoir, seen: Pass) -> None:
    """What the head reads of every answer, then averages over tokens where these have no answers."""
    pooled = [] if seen.per_token else [seen.rows(x) for x in _in_order(seen.states)]
    columns = [x.float() for x in (seen.head, *pooled)]
    rows.add(flat_rows(columns, seen.logits.ndim - 1, real_rows(seen)))


def _in_order(layers: dict[int, Tensor]) -> list[Tensor]:
    return [layers[i] for i in range(len(layers))]
