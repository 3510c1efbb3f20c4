"""How unfamiliar an input is to a trained Transformer: one score from the columns of one pass.

Every column (`views.py`) is standardised on held-out rows. Rows that `calibrate` makes unfamiliar itself
(`unfamiliar.py`) choose the weights of the columns; without them every kind of column counts once. Columns
without weight are dropped, and their GPs with them. No out-of-distribution data and no labels are needed.
Novelty is the percentile of the sum among held-out rows, as for the library's own models
(`sgpa.inference.novelty`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sgpa.core.errors import CheckpointError, InputError
from sgpa.core.limits import NOVELTY_ROWS
from sgpa.core.precision import recording
from sgpa.core.saved_tensors import Shape, check_statistics, check_tensors
from sgpa.posthoc.view_weights import LARGEST, fit_weights
from sgpa.posthoc.views import Views

STATISTICS = ("offset", "scale", "weights", "held_out")


@dataclass(frozen=True)
class TransformerNovelty:
    """Weighted views of a pass, and how held-out rows score under them."""

    views: Views
    offset: Tensor  # mean of every column over held-out rows                        [K]
    scale: Tensor  # their standard deviation                                        [K]
    weights: Tensor  # of the standardised columns                                   [K]
    held_out: Tensor  # sums of held-out rows, sorted                                [rows]

    @staticmethod
    def fit(views: Views, held_out: Tensor, unfamiliar: Sequence[Tensor] = ()) -> "TransformerNovelty":
        """Standardise, weigh, and keep what has a weight.

        Args:
            views: all columns.
            held_out: columns of rows that the model was not trained on, [N, K].
            unfamiliar: columns of kinds of rows that choose the weights, [M, K] each.
        """
        if len(held_out) < NOVELTY_ROWS:
            raise InputError(f"novelty: {len(held_out)} held-out rows; at least {NOVELTY_ROWS} are needed")
        columns = held_out.double()
        wrong = (~columns.isfinite().all(0)).nonzero().flatten().tolist()
        if wrong:
            raise InputError(f"novelty: the model's {views.names[wrong[0]]} is not finite for held-out rows")
        offset, scale = columns.mean(0), columns.std(0).clamp_min(1e-12)
        z = (columns - offset) / scale
        kinds = [(kind.double() - offset) / scale for kind in unfamiliar]
        weights = fit_weights(z, [kind[kind.isfinite().all(-1)] for kind in kinds])
        if weights is None:
            weights = _equal_weights(z, views)
        weights = weights.masked_fill(weights < 1e-3 * weights.max(), 0.0)
        keep = weights > 0
        sums = _sums(z[:, keep], weights[keep]).sort().values
        return TransformerNovelty(views.part(keep.tolist()), offset[keep], scale[keep], weights[keep], sums)

    def score(self, columns: Tensor) -> Tensor:
        """The weighted sum of standardised columns [N, K], [N]: comparable between rows."""
        z = (columns.to(self.offset.device).double() - self.offset) / self.scale
        return _sums(z, self.weights)

    def __call__(self, columns: Tensor) -> Tensor:
        """Novelty in [0, 1]: the share of held-out rows that look more familiar, [N]."""
        score = self.score(columns)
        if recording(score):  # ONNX has no searchsorted
            below = (self.held_out < score.unsqueeze(-1)).sum(-1)  # of [N, rows]
        else:
            below = torch.searchsorted(self.held_out, score, right=False)
        return below.double() / len(self.held_out)

    def to(self, device: torch.device, float64: torch.device) -> "TransformerNovelty":
        """The same with its GPs on one device, and float64 numbers on another that has them."""
        moved = {name: getattr(self, name).to(float64) for name in STATISTICS}
        return TransformerNovelty(views=self.views.to(device), **moved)

    def tensors(self) -> dict[str, Tensor]:
        """All of it as named tensors, to be saved."""
        named = {f"novelty.{name}": getattr(self, name).contiguous() for name in STATISTICS}
        return named | self.views.tensors()

    @staticmethod
    def from_tensors(
        named: Mapping[str, Tensor], names: Sequence[str], layers: int, source: object
    ) -> "TransformerNovelty":
        """What `tensors` returned, of columns with these names and a model with so many attention layers."""
        views = Views.from_tensors(named, names, layers, source)
        shapes: dict[str, Shape] = dict.fromkeys(("offset", "scale", "weights"), (len(names),))
        shapes["held_out"] = ("H",)
        check_tensors(named, {f"novelty.{name}": shape for name, shape in shapes.items()}, source)
        of = {name: named[f"novelty.{name}"].double() for name in STATISTICS}
        check_statistics(of["scale"], of["held_out"], source)
        if not (of["weights"] > 0).all():
            raise CheckpointError(f"{source}: novelty.weights are not above zero; it was damaged")
        return TransformerNovelty(views=views, **of)


def _sums(z: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums of standardised columns [N, K], [N]."""
    return z.clamp(-LARGEST, LARGEST) @ weights


def _equal_weights(z: Tensor, views: Views) -> Tensor:
    """Weights with which the output, tokens and rows have one standard deviation each."""
    weights = torch.zeros_like(z[0])
    for part in views.groups():
        if part:
            weights[part] = 1 / z[:, part].sum(-1).std().clamp_min(1e-12)
    return weights
