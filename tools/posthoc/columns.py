"""What a model shows of every row, as a few numbers per layer: all that calibration and detection need.

Layers 1 to L stand for what their attention reads, L + 1 for what the head reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from sgpa.posthoc.attached import AttachedGp
from sgpa.posthoc.calls import read_batch
from sgpa.posthoc.head_gps import HeadGps
from sgpa.posthoc.passes import Pass
from sgpa.posthoc.reservoir import Reservoir
from sgpa.posthoc.rows import read_rows
from sgpa.posthoc.statistics import device_of

ROWS = 4000
NEIGHBOURS = 20
SHRINKAGE = 0.01


def inverse_root(x: Tensor, weight: float) -> Tensor:
    """W with W W' = C^-1 for the covariance of centred rows [N, E], shrunk by a weight."""
    C = x.T @ x / len(x)
    shrunk = (1 - weight) * C + weight * C.diagonal().mean() * torch.eye(
        C.shape[0], dtype=C.dtype, device=C.device
    )
    L = torch.linalg.cholesky(shrunk)
    return torch.linalg.solve_triangular(L, torch.eye(len(C), dtype=C.dtype, device=C.device), upper=False).T


@dataclass(frozen=True)
class Distances:
    """Squared Mahalanobis distances to all rows and to the nearest class."""

    means: Tensor  # [K, E]
    centre: Tensor
    within: Tensor
    total: Tensor

    @staticmethod
    def fit(x: Tensor, labels: Tensor, weight: float) -> "Distances":
        """Of rows [N, E] with predicted classes [N]."""
        x = x.double()
        _, nearest = labels.unique(return_inverse=True)
        counts = nearest.bincount()
        means = x.new_zeros(len(counts), x.shape[1]).index_add_(0, nearest, x) / counts.unsqueeze(1)
        centre = x.mean(0)
        return Distances(
            means, centre, inverse_root(x - means[nearest], weight), inverse_root(x - centre, weight)
        )

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithms of the distance to all rows and to the nearest class, [N] each."""
        y = x.double() - self.centre
        everything = (y @ self.total).square().sum(-1)
        classes = torch.cdist(y @ self.within, (self.means - self.centre) @ self.within).amin(-1).square()
        return everything.clamp_min(1e-12).log(), classes.clamp_min(1e-12).log()


class Columns:
    """Everything that is fitted to training rows."""

    @torch.no_grad()
    def __init__(self, gp: AttachedGp, batches: Sequence[Any]) -> None:
        self.gp, self.model = gp, gp._attached("columns")
        assert gp._fitted is not None
        self.views = gp._fitted.views
        self.device = device_of(self.model)
        rows = Reservoir(ROWS)
        for batch in batches:
            seen = gp._observe(self.model, read_batch(batch, self.device))
            rows.add([torch.stack(self._pooled(seen), 1), seen.logits.argmax(-1)])
        pooled, labels = (x.to(self.device) for x in rows.columns())  # [N, L + 1, E], [N]
        self.distances = [Distances.fit(x, labels, SHRINKAGE) for x in pooled.unbind(1)]
        self.head = normalize(pooled[:, -1])
        one = torch.ones(1, device=self.device)
        self.plain_gp = HeadGps.fit(pooled[:, -1:], one.unsqueeze(1), one, points=256, share=1.0, name="head")

    def _pooled(self, seen: Pass) -> list[Tensor]:
        states = [seen.states[i] for i in range(len(seen.states))]
        return [*(seen.rows(x).float() for x in states), seen.head.float()]

    @torch.no_grad()
    def of(self, batches: Sequence[Any]) -> dict[str, Tensor]:
        """Columns of all rows, on the CPU: [N, L], [N, L + 1] or [N]; logits, head and labels too."""
        parts: list[dict[str, Tensor]] = []
        for batch in batches:
            call = read_batch(batch, self.device)
            seen = self.gp._observe(self.model, call)
            placed = self.gp._ready("columns").on(self.device)
            rows = read_rows(seen, placed.gps, placed.novelty.views)
            columns = {"logits": rows.logits, "carried": rows.carried, "shares": rows.shares}
            columns |= {"head": seen.head.float(), "novelty": placed.novelty.score(rows.views)}
            columns["views"] = self.views.columns(seen, placed.gps.head.variance(seen.head))
            pooled = self._pooled(seen)
            pairs = [each(x) for x, each in zip(pooled, self.distances, strict=True)]
            columns[f"distance {SHRINKAGE}"] = torch.stack([pair[0] for pair in pairs], 1)
            columns[f"class distance {SHRINKAGE}"] = torch.stack([pair[1] for pair in pairs], 1)
            nearest = torch.cdist(normalize(pooled[-1]), self.head)
            columns["knn"] = nearest.kthvalue(NEIGHBOURS, -1).values
            columns["plain gp"] = self.plain_gp.variance(pooled[-1][:, None, None]).flatten()
            if call.targets is not None:
                columns["labels"] = call.targets
            parts.append({key: value.cpu() for key, value in columns.items()})
        return {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
