"""One pass over training data, without labels: inducing queries and gains of every head, features of rows."""

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
from sgpa.posthoc.rows import flat_rows, pooled_states, real_rows
from sgpa.posthoc.sites import Site

MAX_TOKENS = 4096  # queries of a head that inducing points are made of
MAX_ROWS = 2000  # rows that the statistics of novelty are made of
GAIN_ROWS = 64  # rows that gains are measured on


@dataclass(frozen=True)
class Fitted:
    """What one pass over training data gave."""

    head: nn.Module
    gps: tuple[HeadGps, ...]
    head_gp: FeatureGp
    states: Tensor  # what attention reads in layers 2 to L, of training rows    [N, L - 1, E]
    features: Tensor  # what the head reads                                      [N, E]
    labels: Tensor  # the classes that the model predicts                        [N]
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
        """[H, V]."""
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
) -> Fitted:
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
    queries, rows = Reservoir(MAX_TOKENS), Reservoir(MAX_ROWS)
    spreads = [Spread() for _ in sites]
    first: list[Call] = []
    count = 0
    for batch in islice(loader, max_batches):
        call = read_batch(batch, device)
        head = head or find_head(model, call)
        outputs: dict[int, Tensor] = {}
        seen = observe(model, sites, head, call, on_heads=outputs.__setitem__)
        real = None if seen.padding is None else ~seen.padding
        for i, spread in enumerate(spreads):
            spread.add(outputs[i], real)
        queries.add(
            [
                seen.queries[i].flatten(0, 1) if real is None else seen.queries[i][real]
                for i in range(len(sites))
            ]
        )
        _add_rows(rows, seen)
        if count < GAIN_ROWS:
            first.append(call)
        count += len(seen.logits)
    if head is None:
        raise InputError("fit: the loader yields no batch")
    if len(queries) < 2 * points:
        raise InputError(
            f"fit: {len(queries)} tokens for {points} inducing points (at least {2 * points} are needed)"
        )
    deviations = [each.result().to(device) for each in spreads]
    gains = measure_gains(model, sites, head, first, deviations)
    gps = tuple(
        HeadGps.fit(q.to(device), s, g, points=points, share=share, name=site.name)
        for q, s, g, site in zip(queries.columns(), deviations, gains, sites, strict=True)
    )
    states, features, labels = rows.columns()
    head_gp = FeatureGp.fit(features.to(device))
    return Fitted(head, gps, head_gp, states, features, labels, share)


def device_of(model: nn.Module) -> torch.device:
    """Where the parameters are."""
    return next(model.parameters()).device


def _add_rows(rows: Reservoir, seen: Pass) -> None:
    """States, what the head reads and the predicted class of every answer of a pass."""
    columns = [pooled_states(seen), seen.head.float(), seen.logits.argmax(-1)]
    rows.add(flat_rows(columns, seen.logits.ndim - 1, real_rows(seen)))
