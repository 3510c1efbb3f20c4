"""The GPs of all layers of a model, evaluated together where that is faster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from sgpa.posthoc.feature_gp import FeatureGp
from sgpa.posthoc.head_gps import HeadGps


@dataclass(frozen=True)
class Group:
    """Layers whose heads have one shape, as one module with all of their heads."""

    numbers: tuple[int, ...]
    gps: HeadGps

    def variance(self, queries: Mapping[int, Tensor]) -> Tensor:
        """Variance that is left at the queries [B, T, H, D] of every layer, [B, T, L, H]."""
        several = [queries[i] for i in self.numbers]
        q = several[0] if len(several) == 1 else torch.cat(several, 2)  # [B, T, L H, D]
        return self.gps.variance(q).unflatten(-1, (len(self.numbers), -1))

    @property
    def gain(self) -> Tensor:
        """Squared derivatives of the outputs, [L, H]."""
        return self.gps.gain.view(len(self.numbers), -1)


@dataclass(frozen=True)
class LayerGps:
    """GPs of layers and of what the head reads, on one device."""

    layers: tuple[HeadGps, ...]
    groups: tuple[Group, ...]
    head: FeatureGp

    @staticmethod
    def on(layers: Sequence[HeadGps], head: FeatureGp, device: torch.device) -> "LayerGps":
        """On a GPU layers of one shape run together; on a CPU they take turns, which needs less memory."""
        moved = tuple(gp.to(device) for gp in layers)

        def shape(i: int) -> tuple[object, ...]:
            together = device.type == "cuda"
            return (moved[i].Z.shape, moved[i].spread.shape) if together else (i,)

        parts = [tuple(numbers) for _, numbers in groupby(range(len(moved)), shape)]
        groups = (Group(numbers, HeadGps.joined([moved[i] for i in numbers])) for numbers in parts)
        return LayerGps(moved, tuple(groups), head.to(device))
