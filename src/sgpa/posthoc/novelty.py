"""How unfamiliar an input is to a trained Transformer: one score from three views of one pass.

- *Attention*: the variance that the GPs leave, averaged over heads and tokens, mean over layers.
- *States*: log distance of what attention reads, averaged over tokens, to training rows, mean over layers.
- *Output*: log distance of what the head reads to the nearest class, plus the free energy of the logits.

Every column is standardised on held-out rows; where there are several layers, the first is left out. Rows
that `calibrate` makes unfamiliar itself (`unfamiliar.py`) choose the weights of the columns; without them
every view counts once. No out-of-distribution data and no labels are needed: classes are those that the
model predicts. Novelty is the percentile of the sum among held-out rows, as for the library's own models
(`sgpa.inference.novelty`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sgpa.core.errors import CheckpointError, InputError
from sgpa.core.precision import recording
from sgpa.core.saved_tensors import Shape, check_tensors
from sgpa.inference.novelty import MIN_ROWS, ClassDistances, check_statistics, distance_shapes
from sgpa.posthoc.view_weights import LARGEST, fit_weights

FIELDS = tuple(ClassDistances.__dataclass_fields__)
STATISTICS = ("offset", "scale", "weights", "held_out")


@dataclass(frozen=True)
class Evidence:
    """What novelty is made of, one row per answer."""

    shares: Tensor  # variance that the GPs of each layer leave                     [N, L]
    states: Tensor  # what attention reads in layers 2 to L, averaged over tokens   [N, L - 1, E]
    head: Tensor  # what the last layer reads                                       [N, E]
    energy: Tensor  # log sum exp of the logits; zero where numbers are predicted   [N]

    def __len__(self) -> int:
        return len(self.head)

    def to(self, device: torch.device) -> "Evidence":
        """The same in float64 on a device."""
        return Evidence(*(getattr(self, name).to(device).double() for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Views:
    """Distances of training rows, in the states and in what the head reads."""

    head: ClassDistances
    centre: Tensor  # of the states of layers 2 to L                             [L - 1, E]
    root: Tensor  # W with W W' = covariance^-1 of every layer                   [L - 1, E, E]

    @staticmethod
    def fit(states: Tensor, head: Tensor, labels: Tensor | None) -> "Views":
        """Of training rows; arguments as those of `TransformerNovelty.fit`."""
        layers = [ClassDistances.fit(x, None) for x in states.unbind(1)]
        E = states.shape[-1]
        centre = [each.centre for each in layers] or [torch.zeros(0, E, dtype=torch.float64)]
        root = [each.within for each in layers] or [torch.zeros(0, E, E, dtype=torch.float64)]
        stack = torch.stack if layers else torch.cat
        return Views(ClassDistances.fit(head, labels), stack(centre), stack(root))

    def columns(self, rows: Evidence) -> Tensor:
        """Head, energy, shares and states side by side, [N, 2 + L' + L - 1]."""
        head = self.head.to_class(rows.head)
        whitened = (rows.states - self.centre).transpose(0, 1) @ self.root  # [L - 1, N, E]
        distances = torch.cat([head.unsqueeze(-1), whitened.square().sum(-1).T], -1).clamp_min(1e-12).log()
        return torch.cat(
            [distances[:, :1], -rows.energy.unsqueeze(-1), _later(rows.shares), distances[:, 1:]], -1
        )


@dataclass(frozen=True)
class TransformerNovelty:
    """Views of training rows, and how held-out rows score under them."""

    views: Views
    offset: Tensor  # mean of every column over held-out rows                        [columns]
    scale: Tensor  # their standard deviation                                        [columns]
    weights: Tensor  # of the standardised columns                                   [columns]
    held_out: Tensor  # sums of held-out rows, sorted                                [rows]

    @staticmethod
    def fit(
        states: Tensor,
        head: Tensor,
        labels: Tensor | None,
        *,
        held_out: Evidence,
        unfamiliar: Sequence[Evidence] = (),
    ) -> "TransformerNovelty":
        """Fit to training rows, standardise on held-out rows.

        Args:
            states: what attention reads in layers 2 to L, [N, L - 1, E].
            head: what the last layer reads, [N, E].
            labels: the classes that the model predicts, [N]; None for numbers.
            held_out: rows that the model was not trained on.
            unfamiliar: kinds of rows that choose the weights of the columns.
        """
        for name, rows in (("training", head), ("held-out", held_out)):
            if len(rows) < MIN_ROWS:
                raise InputError(f"novelty: {len(rows)} {name} rows; at least {MIN_ROWS} are needed")
        held_out = held_out.to(head.device)
        for name in held_out.__dataclass_fields__:
            if not getattr(held_out, name).isfinite().all():
                raise InputError(f"novelty: the model's {name} are not finite")
        views = Views.fit(states, head, labels)
        columns = views.columns(held_out)
        offset, scale = columns.mean(0), columns.std(0).clamp_min(1e-12)
        z = (columns - offset) / scale
        kinds = [(views.columns(rows.to(head.device)) - offset) / scale for rows in unfamiliar]
        weights = fit_weights(z, [kind[kind.isfinite().all(-1)] for kind in kinds])
        if weights is None:
            weights = _equal_weights(z, _later(held_out.shares).shape[1])
        return TransformerNovelty(views, offset, scale, weights, _sums(z, weights).sort().values)

    def score(self, rows: Evidence) -> Tensor:
        """The weighted sum of the standardised columns, [N]: comparable between rows."""
        z = (self.views.columns(rows.to(self.offset.device)) - self.offset) / self.scale
        return _sums(z, self.weights)

    def __call__(self, rows: Evidence) -> Tensor:
        """Novelty in [0, 1]: the share of held-out rows that look more familiar, [N]."""
        score = self.score(rows)
        if recording(score):  # ONNX has no searchsorted
            below = (self.held_out < score.unsqueeze(-1)).sum(-1)  # of [N, rows]
        else:
            below = torch.searchsorted(self.held_out, score, right=False)
        return below.double() / len(self.held_out)

    def to(self, device: torch.device) -> "TransformerNovelty":
        """The same on another device."""
        head = ClassDistances(*(getattr(self.views.head, name).to(device) for name in FIELDS))
        views = Views(head, self.views.centre.to(device), self.views.root.to(device))
        moved = {name: getattr(self, name).to(device) for name in STATISTICS}
        return TransformerNovelty(views=views, **moved)

    def tensors(self) -> dict[str, Tensor]:
        """All of it as named tensors, to be saved."""
        named = {name: getattr(self, name) for name in STATISTICS}
        named |= {f"0.{name}": getattr(self.views.head, name).float() for name in FIELDS}
        named |= {"centre": self.views.centre.float(), "root": self.views.root.float()}
        return {f"novelty.{name}": value.contiguous() for name, value in named.items()}

    @staticmethod
    def from_tensors(named: Mapping[str, Tensor], depth: int, source: object) -> "TransformerNovelty":
        """What `tensors` returned, of a model with so many attention layers."""
        columns = 2 + max(1, depth - 1) + depth - 1
        shapes: dict[str, Shape] = dict.fromkeys(("offset", "scale", "weights"), (columns,))
        shapes |= {"held_out": ("H",), "centre": (depth - 1, "S"), "root": (depth - 1, "S", "S")}
        shapes |= distance_shapes(0, "E")
        check_tensors(named, {f"novelty.{name}": shape for name, shape in shapes.items()}, source)
        of = {name: named[f"novelty.{name}"].double() for name in shapes}
        check_statistics(of["scale"], of["held_out"], source)
        if (of["weights"] < 0).any() or not of["weights"].any():
            raise CheckpointError(f"{source}: novelty.weights are not above zero; it was damaged")
        head = ClassDistances(*(of[name] for name in distance_shapes(0, 0)))
        views = Views(head, of["centre"], of["root"])
        return TransformerNovelty(views=views, **{name: of[name] for name in STATISTICS})


def _later(shares: Tensor) -> Tensor:
    """Without the first layer, where there are several: its tokens are familiar one by one."""
    return shares[:, 1:] if shares.shape[1] > 1 else shares


def _sums(z: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums of standardised columns [N, columns], [N]."""
    return z.clamp(-LARGEST, LARGEST) @ weights


def _equal_weights(z: Tensor, layers: int) -> Tensor:
    """Weights with which the views output, attention and states have one standard deviation each."""
    weights = torch.zeros_like(z[0])
    for part in torch.arange(len(weights), device=z.device).split([2, layers, len(weights) - 2 - layers]):
        if len(part):
            weights[part] = 1 / z[:, part].sum(-1).std().clamp_min(1e-12)
    return weights
