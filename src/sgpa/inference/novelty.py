"""How unfamiliar an input is to a trained model: one score, fitted without any out-of-distribution data.

Three views of one deterministic pass, each standardised on held-out rows and added up:

- what the head reads: log distance to the nearest class, in units of the spread within classes;
- the inner layers, tokens averaged: how much farther that distance is than the distance to all rows together
  (the relative Mahalanobis distance), averaged over layers;
- the output: the free energy -log sum exp of the logits.

Far inputs (plain colours, noise, other kinds of pictures) are seen by the first two, near ones (classes the
model was not trained on) by the last two. A squared Mahalanobis distance is, up to scale, the posterior
variance of a Gaussian process with a linear kernel whose inputs are the pooled features. Novelty is the
percentile of the sum among held-out rows: 0.99 means that 99 % of held-out rows look more familiar.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from sgpa.core.errors import InputError
from sgpa.core.files import read_tensors
from sgpa.core.inputs import Inputs
from sgpa.core.limits import NOVELTY_ROWS
from sgpa.core.precision import recording
from sgpa.core.saved_tensors import Shape, check_statistics, check_tensors
from sgpa.data import Dataset
from sgpa.inference.shortened import lengths_of, parts_of
from sgpa.models import Transformer
from sgpa.models.pooled_features import PooledFeatures, pooled_features

MAX_ROWS = 2000  # of training and of held-out rows that the statistics are made of
SHORT = 0.05  # of the held-out sequences are shorter than a part may be


@dataclass(frozen=True)
class ClassDistances:
    """Distances of points to the nearest class and to all rows together; without labels one class is all."""

    means: Tensor  # of classes                                              [K, E]
    centre: Tensor  # of all rows                                            [E]
    within: Tensor  # W with W W' = (covariance within classes)^-1           [E, E]
    total: Tensor  # the same of all rows                                    [E, E]

    @staticmethod
    def fit(x: Tensor, labels: Tensor | None) -> "ClassDistances":
        """Means and shrunk covariances of rows x [N, E]."""
        x = x.double()
        centre = x.mean(0)
        if labels is None:
            means, nearest = centre.unsqueeze(0), torch.zeros(len(x), dtype=torch.long)
        else:
            _, nearest = labels.unique(return_inverse=True)
            counts = nearest.bincount()  # [K]
            means = x.new_zeros(len(counts), x.shape[1]).index_add_(0, nearest, x) / counts.unsqueeze(1)
        within = _inverse_root(x - means[nearest])
        return ClassDistances(means, centre, within, _inverse_root(x - centre))

    def rounded(self) -> "ClassDistances":
        """The same as a file keeps it, in float32."""
        return ClassDistances(*(_rounded(getattr(self, name)) for name in self.__dataclass_fields__))

    def to_class(self, x: Tensor) -> Tensor:
        """Squared distance to the nearest class mean, [N]."""
        if x.shape[-1] != len(self.centre):
            raise InputError(
                f"novelty: rows have {x.shape[-1]} features, its statistics {len(self.centre)}: they are of "
                "another model"
            )
        whitened = (x.double() - self.centre) @ self.within, (self.means - self.centre) @ self.within
        if recording(x):  # ONNX has no cdist
            return (whitened[0].unsqueeze(1) - whitened[1]).square().sum(-1).amin(-1)  # of [N, K, E]
        exact = "donot_use_mm_for_euclid_dist"
        return torch.cdist(*whitened, compute_mode=exact).amin(-1).square()  # of [N, K]

    def relative(self, x: Tensor) -> Tensor:
        """Distance to the nearest class less that to all rows, [N]; of one class the log distance itself."""
        if len(self.means) == 1:
            return self.to_class(x).log()
        everything = ((x.double() - self.centre) @ self.total).square().sum(-1)  # [N]
        return self.to_class(x) - everything


def distance_shapes(number: int, width: int | str) -> dict[str, Shape]:
    """Shapes of the tensors of a saved `ClassDistances`, which has a number; in the order of its fields."""
    shapes: tuple[Shape, ...] = ((f"K{number}", width), (width,), (width, width), (width, width))
    return {
        f"{number}.{name}": shape
        for name, shape in zip(ClassDistances.__dataclass_fields__, shapes, strict=True)
    }


@dataclass(frozen=True)
class Novelty:
    """Statistics of training rows, and how held-out rows score under them.

    Example:
        >>> rows = PooledFeatures(torch.randn(200, 2, 4), torch.randn(200, 4), torch.randn(200, 3))
        >>> novelty = Novelty.fit(rows, torch.arange(200) % 3, held_out=rows)
        >>> far = PooledFeatures(9 + torch.randn(1, 2, 4), 9 + torch.randn(1, 4), torch.zeros(1, 3))
        >>> bool(novelty(far) > 0.99)
        True
    """

    head: ClassDistances
    layers: tuple[ClassDistances, ...]
    offset: Tensor  # mean of each view's scores over held-out rows             [2 + L]
    scale: Tensor  # their standard deviation                                   [2 + L]
    held_out: Tensor  # sums of held-out rows, sorted                           [H]
    parts: Tensor | None = None  # of held-out sequences: lengths, sorted, and sums  [2, P]

    @staticmethod
    def fit(train: PooledFeatures, labels: Tensor | None, *, held_out: PooledFeatures) -> "Novelty":
        """Fit to training rows, standardise on held-out rows.

        Args:
            train: features of training rows.
            labels: their classes [N], or None.
            held_out: features of rows that the model was not trained on.
        """
        for name, rows in (("training", train), ("held-out", held_out)):
            if len(rows) < NOVELTY_ROWS:
                raise InputError(f"novelty: {len(rows)} {name} rows; at least {NOVELTY_ROWS} are needed")
        head = ClassDistances.fit(train.head, labels).rounded()
        layers = tuple(ClassDistances.fit(x, labels).rounded() for x in train.layers.unbind(1))
        views = _views(head, layers, held_out)  # [H, 2 + L]
        offset, scale = _rounded(views.mean(0)), _rounded(views.std(0).clamp_min(1e-12))
        sums = _rounded(_add_up((views - offset) / scale))
        return Novelty(head, layers, offset, scale, sums.sort().values)

    def score(self, features: PooledFeatures) -> Tensor:
        """The sum of standardised views, [N]: comparable between rows, without a unit.

        It is rounded as saved sums are, so that a held-out row ties with itself.
        """
        views = _views(self.head, self.layers, features)
        return _rounded(_add_up((views - self.offset) / self.scale))

    def with_parts(self, features: PooledFeatures, lengths: Tensor) -> "Novelty":
        """The same for sequences, of which short ones are compared with parts of held-out ones.

        Args:
            features: of parts that are shorter than nearly all held-out sequences.
            lengths: their numbers of tokens [P].
        """
        order = lengths.argsort(stable=True)
        return replace(self, parts=torch.stack([lengths.double(), self.score(features)])[:, order])

    def __call__(self, features: PooledFeatures, lengths: Tensor | None = None) -> Tensor:
        """Novelty in [0, 1]: the share of held-out rows that look more familiar, [N].

        A sequence that is no longer than the longest of `parts` is compared with those of the nearest lengths
        instead, at most as many as there are held-out rows; `lengths` [N] are the numbers of tokens.
        """
        score = self.score(features)
        novelty = torch.searchsorted(self.held_out, score, right=False).double() / len(self.held_out)
        if self.parts is None or lengths is None:
            return novelty
        known, sums = self.parts
        rows = min(len(self.held_out), len(sums))
        first = torch.searchsorted(known, lengths.double()) - rows // 2
        at = first.clamp(0, len(sums) - rows).unsqueeze(1) + torch.arange(rows)  # [N, rows]
        among_parts = (sums[at] < score.unsqueeze(1)).double().mean(1)
        return torch.where(lengths <= known[-1], among_parts, novelty)

    def tensors(self) -> dict[str, Tensor]:
        """All of it as named tensors, to be saved."""
        named = {"offset": self.offset, "scale": self.scale, "held_out": self.held_out}
        named |= {} if self.parts is None else {"parts": self.parts}
        for i, part in enumerate((self.head, *self.layers)):
            named |= {f"{i}.{name}": getattr(part, name) for name in ClassDistances.__dataclass_fields__}
        return {f"novelty.{name}": value for name, value in named.items()}

    @staticmethod
    def from_tensors(
        named: Mapping[str, Tensor], depth: int, width: int | str = "E", source: object = "novelty"
    ) -> "Novelty":
        """What `tensors` returned, of a model with so many layers of this width."""
        views = depth + 1
        shapes: dict[str, Shape] = {"offset": (views,), "scale": (views,), "held_out": ("H",)}
        for i in range(depth):
            shapes |= distance_shapes(i, width)
        if "novelty.parts" in named:
            shapes["parts"] = (2, "P")
        check_tensors(named, {f"novelty.{name}": shape for name, shape in shapes.items()}, source)
        of = {name: named[f"novelty.{name}"].double() for name in shapes}
        check_statistics(of["scale"], of["held_out"], source)
        parts = [ClassDistances(*(of[name] for name in distance_shapes(i, width))) for i in range(depth)]
        return Novelty(parts[0], tuple(parts[1:]), of["offset"], of["scale"], of["held_out"], of.get("parts"))


@dataclass(frozen=True)
class NoveltyOf:
    """Novelty of a model's inputs."""

    model: Transformer
    novelty: Novelty

    def __call__(self, inputs: Inputs) -> Tensor:
        """Novelty of every row in [0, 1], [N]."""
        return self.novelty(pooled_features(self.model, inputs), lengths_of(inputs, pad_of(self.model)))

    def tensors(self) -> dict[str, Tensor]:
        """The statistics as named tensors in float32, to be saved."""
        return {name: value.float() for name, value in self.novelty.tensors().items()}

    @staticmethod
    def read(model: Transformer, file: Path | None) -> "NoveltyOf | None":
        """Statistics that were saved (`Novelty.tensors`); None where there is no such file."""
        if file is None or not file.exists():
            return None
        depth, width = model.config.depth, model.config.width
        return NoveltyOf(model, Novelty.from_tensors(read_tensors(file)[0], depth, width, file))

    @staticmethod
    def fit(model: Transformer, train: Dataset, held_out: Dataset) -> "NoveltyOf | None":
        """Statistics of a trained model, from its training rows and rows it was not trained on.

        None where there are fewer than `NOVELTY_ROWS` of either. Of many rows a random part is used. Held-out
        sequences are shortened too: a short text is not unfamiliar for its length.
        """
        if min(len(train), len(held_out)) < NOVELTY_ROWS:
            return None
        train, held_out = (data[some_rows(len(data))] for data in (train, held_out))
        labels = train.targets.cpu() if model.config.likelihood == "categorical" else None
        features = [pooled_features(model, part.inputs) for part in (train, held_out)]
        novelty = Novelty.fit(features[0], labels, held_out=features[1])
        return NoveltyOf(model, novelty).with_parts(held_out.inputs)

    def with_parts(self, inputs: Inputs) -> "NoveltyOf":
        """The same with short parts of held-out sequences, where there are enough; images have no parts."""
        pad = pad_of(self.model)
        whole = lengths_of(inputs, pad)
        if whole is None:
            return self
        limit = torch.quantile(whole.double(), SHORT)
        kept: list[tuple[PooledFeatures, Tensor]] = []
        for parts, lengths in parts_of(inputs, pad):
            if (short := lengths < limit).any():
                kept.append((pooled_features(self.model, parts[short]), lengths[short]))
        if sum(len(lengths) for _, lengths in kept) < NOVELTY_ROWS:
            return self
        features = PooledFeatures.joined([rows for rows, _ in kept])
        lengths = torch.cat([lengths for _, lengths in kept])
        return replace(self, novelty=self.novelty.with_parts(features, lengths))


def pad_of(model: Transformer) -> int:
    """The id that fills up short rows of token ids."""
    return getattr(model.config.embedding, "pad", 0)


def some_rows(rows: int) -> Tensor:
    """At most `MAX_ROWS` of that many rows, drawn at random with a fixed seed."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(0))
    return order[:MAX_ROWS].sort().values


def _views(head: ClassDistances, layers: tuple[ClassDistances, ...], rows: PooledFeatures) -> Tensor:
    """Head, energy, then the layers, [N, 2 + L]; no energy (zero) where numbers are predicted."""
    distance = head.to_class(rows.head).clamp_min(1e-12).log()
    energy = torch.zeros_like(distance) if rows.logits is None else -rows.logits.double().logsumexp(-1)
    inner = [part.relative(x) for part, x in zip(layers, rows.layers.unbind(1), strict=True)]
    return torch.stack([distance, energy, *inner], -1)


def _add_up(z: Tensor) -> Tensor:
    """Head and energy count once each, all layers together once: [N, 2 + L] -> [N]."""
    inner = z[:, 2:].mean(-1) if z.shape[1] > 2 else 0.0
    return z[:, 0] + z[:, 1] + inner


def _rounded(x: Tensor) -> Tensor:
    """Numbers as a file in float32 has them: a saved model judges as it did before."""
    return x.float().double()


def _inverse_root(centred: Tensor) -> Tensor:
    """W with W W' = C^-1 for the covariance C of centred rows [N, E], shrunk towards a multiple of I.

    The weight of the multiple follows from the number of rows (oracle approximating shrinkage, Chen et al.
    2010), so that fewer rows than dimensions do no harm; at least a tenth, which keeps directions in which
    training rows hardly differ from deciding alone.
    """
    n, e = centred.shape
    C = centred.T @ centred / n  # [E, E]
    level = C.diagonal().mean().clamp_min(1e-12)
    squares = C.square().mean()  # tr(C C) / E²
    weight = (squares + level**2) / ((n + 1) * (squares - level**2 / e)).clamp_min(1e-300)
    weight = weight.clamp(0.1, 1.0)
    shrunk = (1 - weight) * C + weight * level * torch.eye(e, dtype=C.dtype)
    return torch.linalg.solve_triangular(
        torch.linalg.cholesky(shrunk), torch.eye(e, dtype=C.dtype), upper=False
    ).T
