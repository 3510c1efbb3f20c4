"""One pass over training data, without labels: GPs of every head, of what novelty looks at, and gains."""

import logging
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
from sgpa.posthoc.site_checks import check_sites
from sgpa.posthoc.sites import Site
from sgpa.posthoc.views import Views

MAX_TOKENS = 4096  # tokens that inducing points are made of
MAX_ROWS = 2000  # rows that inducing points are made of
GAIN_ROWS = 64  # rows that gains are measured on

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Statistics:
    """What one pass over training data gave."""

    sites: tuple[Site, ...]  # attention modules that have a GP
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
    if torch.is_inference_mode_enabled():
        raise InputError("fit: needs gradients; call it outside torch.inference_mode()")
    device = device_of(model)
    tokens, rows = Reservoir(MAX_TOKENS), Reservoir(MAX_ROWS)
    spreads: list[Spread] = []
    first: list[Call] = []
    count, classes = 0, False
    for batch in islice(loader, max_batches):
        call = read_batch(batch, device)
        if not spreads:
            head = head or find_head(model, call)
            sites = of_equal_tokens(sites, observe(model, sites, head, call))
            check_sites(model, sites, head, call)
            spreads = [Spread() for _ in sites]
            warn_of_masks(call)
        assert head is not None
        outputs: dict[int, Tensor] = {}
        seen = observe(model, sites, head, call, on_heads=outputs.__setitem__)
        real = None if seen.padding is None else ~seen.padding
        for i, spread in enumerate(spreads):
            spread.add(outputs[i].reshape(*seen.queries[i].shape[:3], -1), real)
        every = [*_in_order(seen.queries), *_in_order(seen.states)]
        tokens.add([x.flatten(0, 1) if real is None else x[real] for x in every])
        _add_rows(rows, seen)
        if count < GAIN_ROWS:
            first.append(call.first(GAIN_ROWS - count))
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
    return Statistics(sites, head, gps, FeatureGp.fit(features.to(device)), views, share)


def of_equal_tokens(sites: tuple[Site, ...], seen: Pass) -> tuple[Site, ...]:
    """The largest group of modules that read equally many tokens; the last one of equal groups."""
    counts = [seen.states[i].shape[1] for i in range(len(sites))]
    most = max(reversed(counts), key=counts.count)
    chosen = tuple(site for site, count in zip(sites, counts, strict=True) if count == most)
    if len(chosen) < len(sites):
        log.warning(
            "attention reads different numbers of tokens: GPs are attached to the %d of %d modules that read "
            "%d (%s to %s); name others by attach(model, modules=[...])",
            len(chosen), len(sites), most, chosen[0].name, chosen[-1].name,
        )  # fmt: skip
    return chosen


def warn_of_masks(call: Call) -> None:
    """Warn where what is read as targets looks like an attention mask."""
    x, y = call.args[0] if len(call.args) == 1 else None, call.targets
    if (
        isinstance(x, Tensor)
        and y is not None
        and x.ndim == 2
        and y.shape == x.shape
        and not y.is_floating_point()
    ):
        values = y.unique().tolist()
        if set(values) <= {0, 1} and bool((y[:, 0] == 1).all() or (y[:, -1] == 1).all()):
            log.warning(
                "the second part of a batch is read as targets, but looks like an attention mask; yield a "
                "mapping of the model's arguments, or (inputs, mask, targets)"
            )


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
