"""How unfamiliar an input is to a trained Transformer: one score from three views of one pass.

- *Attention*: the variance that the GPs leave, averaged over heads and tokens, mean over layers.
- *States*: log distance of what attention reads, averaged over tokens, to training rows, mean over layers.
- *Output*: log distance of what the head reads to the nearest class, plus the free energy of the logits.

Each view is standardised on held-out rows and counts once; where there are several layers, the first is left
out. No out-of-distribution data and no labels are needed: classes are those that the model predicts. Novelty
is the percentile of the sum among held-out rows, as for the library's own models (`sgpa.inference.novelty`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sgpa.core.errors import InputError
from sgpa.core.precision import recording
from sgpa.core.saved_tensors import Shape, check_tensors
from sgpa.inference.novelty import MIN_ROWS, ClassDistances, check_statistics, distance_shapes

FIELDS = tuple(ClassDistances.__dataclass_fields__)


@dataclass(frozen=True)
class Evidence:
    """What novelty is made of, one row per answer, on the CPU."""

    shares: Tensor  # variance that the GPs of each layer leave                     [N, L]
    states: Tensor  # what attention reads in layers 2 to L, averaged over tokens   [N, L - 1, E]
    head: Tensor  # what the last layer reads                                       [N, E]
    energy: Tensor  # log sum exp of the logits; zero where numbers are predicted   [N]

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if not recording(self.head) and not getattr(self, name).isfinite().all():
                raise InputError(f"novelty: the model's {name} are not finite")

    def __len__(self) -> int:
        return len(self.head)


@dataclass(frozen=True)
class Views:
    """Distances of training rows, in the states and in what the head reads."""

    head: ClassDistances
    states: tuple[ClassDistances, ...]

    def columns(self, rows: Evidence) -> Tensor:
        """Head, energy, shares and states side by side, [N, 2 + L' + L - 1]."""
        head = self.head.to_class(rows.head).clamp_min(1e-12).log()
        states = [
            part.to_class(x).clamp_min(1e-12).log()
            for part, x in zip(self.states, rows.states.unbind(1), strict=True)
        ]
        return torch.stack(
            [head, -rows.energy.double(), *_later(rows.shares).double().unbind(1), *states], -1
        )


@dataclass(frozen=True)
class TransformerNovelty:
    """Views of training rows, and how held-out rows score under them."""

    views: Views
    offset: Tensor  # mean of every column over held-out rows                        [columns]
    scale: Tensor  # their standard deviation                                        [columns]
    unit: Tensor  # standard deviation of the views output, attention and states     [3]
    held_out: Tensor  # sums of held-out rows, sorted                                [rows]
    layers: int  # columns of shares

    @staticmethod
    def fit(
        states: Tensor, head: Tensor, labels: Tensor | None, *, held_out: Evidence
    ) -> "TransformerNovelty":
        """Fit to training rows, standardise on held-out rows.

        Args:
            states: what attention reads in layers 2 to L, [N, L - 1, E].
            head: what the last layer reads, [N, E].
            labels: the classes that the model predicts, [N]; None for numbers.
            held_out: rows that the model was not trained on.
        """
        for name, rows in (("training", head), ("held-out", held_out)):
            if len(rows) < MIN_ROWS:
                raise InputError(f"novelty: {len(rows)} {name} rows; at least {MIN_ROWS} are needed")
        layers_of = tuple(ClassDistances.fit(x, None) for x in states.unbind(1))
        views = Views(ClassDistances.fit(head, labels), layers_of)
        columns = views.columns(held_out)
        offset, scale = columns.mean(0), columns.std(0).clamp_min(1e-12)
        layers = _later(held_out.shares).shape[1]
        grouped = _groups((columns - offset) / scale, layers)  # [N, 3]
        unit = grouped.std(0).clamp_min(1e-12)
        sums = (grouped / unit).sum(-1)
        return TransformerNovelty(views, offset, scale, unit, sums.sort().values, layers)

    def score(self, rows: Evidence) -> Tensor:
        """The sum of the standardised views, [N]: comparable between rows, without an upper end."""
        z = (self.views.columns(rows) - self.offset) / self.scale
        return (_groups(z, self.layers) / self.unit).sum(-1)

    def __call__(self, rows: Evidence) -> Tensor:
        """Novelty in [0, 1]: the share of held-out rows that look more familiar, [N]."""
        score = self.score(rows)
        if recording(score):  # ONNX has no searchsorted
            below = (self.held_out < score.unsqueeze(-1)).sum(-1)  # of [N, rows]
        else:
            below = torch.searchsorted(self.held_out, score, right=False)
        return below.double() / len(self.held_out)

    def tensors(self) -> dict[str, Tensor]:
        """All of it as named tensors, to be saved."""
        named = {name: getattr(self, name) for name in ("offset", "scale", "unit", "held_out")}
        named["layers"] = torch.tensor(self.layers)
        for i, part in enumerate((self.views.head, *self.views.states)):
            named |= {f"{i}.{name}": getattr(part, name).float() for name in FIELDS}
        return {f"novelty.{name}": value for name, value in named.items()}

    @staticmethod
    def from_tensors(named: Mapping[str, Tensor], depth: int, source: object) -> "TransformerNovelty":
        """What `tensors` returned, of a model with so many attention layers."""
        layers = max(1, depth - 1)
        columns = 2 + layers + depth - 1
        shapes: dict[str, Shape] = {"offset": (columns,), "scale": (columns,), "unit": (3,)}
        shapes["held_out"] = ("H",)
        for i in range(depth):
            shapes |= distance_shapes(i, "E" if i == 0 else f"E{i}")
        check_tensors(named, {f"novelty.{name}": shape for name, shape in shapes.items()}, source)
        of = {name: named[f"novelty.{name}"] for name in shapes}
        check_statistics(torch.cat([of["scale"], of["unit"]]), of["held_out"], source)
        parts = [ClassDistances(*(of[name].double() for name in distance_shapes(i, 0))) for i in range(depth)]
        statistics = {name: of[name] for name in ("offset", "scale", "unit", "held_out")}
        return TransformerNovelty(views=Views(parts[0], tuple(parts[1:])), layers=layers, **statistics)


def _later(shares: Tensor) -> Tensor:
    """Without the first layer, where there are several: its tokens are familiar one by one."""
    return shares[:, 1:] if shares.shape[1] > 1 else shares


def _groups(z: Tensor, layers: int) -> Tensor:
    """Standardised columns -> the views output, attention and states, [N, 3]."""
    output, attention, states = z.split([2, layers, z.shape[1] - 2 - layers], -1)
    mean = states.mean(-1) if states.shape[1] else torch.zeros_like(z[:, 0])
    return torch.stack([output.sum(-1), attention.mean(-1), mean], -1)
