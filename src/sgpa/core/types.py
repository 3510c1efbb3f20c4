"""Values that the parts of the package exchange: outputs, losses, predictions. All are frozen."""

import math
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from sgpa.core.arguments import checked
from sgpa.core.errors import InputError
from sgpa.core.html import SHOWN, html_bar, html_table
from sgpa.core.inputs import Inputs
from sgpa.core.precision import require_finite

BISECTIONS = 40  # of a quantile
NOT_FINITE = "the prediction is not finite; the model's weights are too large, or it was damaged"


@dataclass(frozen=True)
class Kl:
    """KL(q(u) || p(u)) of one layer, in nats, summed over heads and value dimensions."""

    g: Tensor  # the part of the global inducing points u_g, shared by all sequences   []
    a: Tensor  # the part of the amortised inducing points, one number per sequence     [..., B]

    @staticmethod
    def zero(like: Tensor) -> "Kl":
        """Zeros, for deterministic attention over `like` [..., B, T, E]."""
        return Kl(like.new_zeros(()), like.new_zeros(like.shape[:-2]))


@dataclass(frozen=True)
class Posterior:
    """Mean and marginal variance of q(f) for every head, token and value dimension."""

    mean: Tensor  # [..., H, T, V]
    variance: Tensor  # [..., H, T, V]


@dataclass(frozen=True)
class AttentionOutput:
    """What an attention layer returns: values with the shape of its input, and the KL."""

    value: Tensor  # [B, T, E], or [S, B, T, E] when samples were asked for
    kl: Kl


@dataclass(frozen=True)
class ModelOutput:
    """Outputs of a Transformer before the likelihood, and the KL of each layer."""

    f: Tensor  # [B, C], or [S, B, C] when samples were asked for
    kl: tuple[Kl, ...]

    @property
    def kl_g(self) -> Tensor:
        """Global KL summed over layers, []."""
        first, *others = (kl.g for kl in self.kl)
        return sum(others, first)

    @property
    def kl_a(self) -> Tensor:
        """Amortised KL summed over layers and averaged over sequences and samples, []."""
        first, *others = (kl.a for kl in self.kl)
        return sum(others, first).mean()


@dataclass(frozen=True)
class Loss:
    """The negative ELBO and its parts."""

    nll: Tensor  # -E_q[log p(y | F^L)], mean over sequences   []
    kl_g: Tensor  # []
    kl_a: Tensor  # []
    weight_g: float | Tensor = 0.0
    weight_a: float | Tensor = 0.0

    @property
    def total(self) -> Tensor:
        """The number to minimise, []."""
        return self.nll + self.weight_g * self.kl_g + self.weight_a * self.kl_a

    @property
    def parts(self) -> Tensor:
        """nll, kl_g, kl_a and their weighted sum, [4]."""
        return torch.stack([self.nll, self.kl_g, self.kl_a, self.total])


def _check_device(owner: str, one: Tensor, other: Tensor) -> None:
    """Raise unless both tensors of a prediction are in one place."""
    if one.device != other.device:
        raise InputError(f"{owner}: tensors on {one.device} and on {other.device} (allowed: one device)")


@checked
@dataclass(frozen=True)
class Classification:
    """Predicted class probabilities, with the uncertainty split into two parts (in nats).

    Probabilities in half precision are raised to float32 and normalised: entropies and logarithms of
    float16 and bfloat16 numbers are too coarse, and a float16 zero only means "below 6e-8".

    Args:
        probabilities: mean over samples of softmax(f), [B, K].
        expected_entropy: mean over samples of the entropy of softmax(f), [B]: the part of the uncertainty
            that comes from the data and that more training data would not remove.

    Example:
        >>> p = Classification(torch.tensor([[0.5, 0.5]]), torch.tensor([0.3]))
        >>> p.label.tolist(), round(float(p.entropy), 3), round(float(p.mutual_information), 3)
        ([0], 0.693, 0.393)
    """

    probabilities: Tensor  # [B, K]
    expected_entropy: Tensor  # [B]
    entropy: Tensor = field(init=False)  # of the mean probabilities   [B]

    def __post_init__(self) -> None:
        _check_device("Classification", self.probabilities, self.expected_entropy)
        given = self.probabilities.dtype
        if not given.is_floating_point:
            raise InputError(f"Classification: probabilities of {given} (allowed: floating-point numbers)")
        if given in (torch.float16, torch.bfloat16):
            smallest = torch.finfo(given).tiny * torch.finfo(given).eps  # the smallest positive number
            p = self.probabilities.float().clamp_min(smallest)
            object.__setattr__(self, "probabilities", p / p.sum(-1, keepdim=True))
            object.__setattr__(self, "expected_entropy", self.expected_entropy.float())
        object.__setattr__(self, "entropy", torch.special.entr(self.probabilities).sum(-1))
        require_finite(lambda: NOT_FINITE, self.entropy, self.expected_entropy)  # -inf for negative ones

    @property
    def mutual_information(self) -> Tensor:
        """Entropy minus expected entropy: the part of the uncertainty that comes from the model, [B]."""
        return (self.entropy - self.expected_entropy).clamp_min(0)

    @property
    def label(self) -> Tensor:
        """Most probable class, [B]."""
        return self.probabilities.argmax(-1)

    @property
    def score(self) -> Tensor:
        """Out-of-distribution score, high for unfamiliar inputs: the predictive entropy, [B]."""
        return self.entropy

    def _repr_html_(self) -> str:
        """A table of the first rows for notebooks; a bar shows the probability of the label."""
        p = self.probabilities.max(-1).values.tolist()
        headers, more = _more_columns(self, len(p))
        columns = (self.label.tolist(), p, self.entropy.tolist(), self.mutual_information.tolist(), more)
        rows = [
            (i, label, f"{p:.3f}", html_bar(p), f"{h:.3f}", f"{mi:.3f}", *cells)
            for i, (label, p, h, mi, cells) in enumerate(zip(*columns, strict=True))
        ]
        named = ("row", "label", "probability", "", "entropy", "mutual information", *headers)
        return html_table(named, rows, SHOWN)


@checked
@dataclass(frozen=True)
class Regression:
    """Predicted values as an equal mixture of Laplace(f_s, b_s), one component per sample.

    Args:
        samples: the components' means f_s in the unit of the targets, [S, B].
        scale: b, one number for all components [] or one for each [S, 1].
        residuals: |y - mean| / deviation of held-out rows in ascending order, from which `interval` takes its
            widths; without them intervals are quantiles of the mixture.

    Example:
        >>> p = Regression(torch.tensor([[1.0], [3.0]]), torch.tensor(0.5))
        >>> float(p.mean), float(p.model_variance), float(p.data_variance)
        (2.0, 1.0, 0.5)
    """

    samples: Tensor  # f_s    [S, B]
    scale: Tensor  # b        [] or [S, 1]
    residuals: Tensor | None = None  # |y - mean| / deviation of held-out rows, ascending   [n]

    def __post_init__(self) -> None:
        samples, scale = self.samples, self.scale
        _check_device("Regression", samples, scale)
        if samples.ndim != 2 or tuple(scale.shape) not in ((), (len(samples), 1)):
            given = f"samples {list(samples.shape)} and scale {list(scale.shape)}"
            raise InputError(f"Regression: {given} (allowed: [S, B], and [] or [S, 1])")
        if not (samples.is_floating_point() and scale.is_floating_point()):
            kinds = f"samples of {samples.dtype} and scale of {scale.dtype}"
            raise InputError(f"Regression: {kinds} (allowed: floating-point numbers)")
        require_finite(lambda: NOT_FINITE, samples, self.variance)

    @property
    def mean(self) -> Tensor:
        """Mean of the mixture, [B]."""
        return self.samples.mean(0)

    @property
    def model_variance(self) -> Tensor:
        """Variance of the samples: the part of the variance that comes from the model, [B]."""
        return self.samples.var(0, correction=0)

    @property
    def data_variance(self) -> Tensor:
        """Variance of the noise, 2 b^2 averaged over components, [B]."""
        return (2 * self.scale.square()).expand_as(self.samples).mean(0)

    @property
    def variance(self) -> Tensor:
        """Variance of the mixture, [B]."""
        return self.model_variance + self.data_variance

    @property
    def score(self) -> Tensor:
        """Out-of-distribution score, high for unfamiliar inputs: the predictive variance, [B]."""
        return self.variance

    @checked
    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Lower and upper ends of the central interval that should hold `level` of the values, [B] each.

        With `residuals` it is mean ± q deviation, with q the ceil((n + 1) level)-th of the n residuals: split
        conformal prediction, which covers at least `level` of rows like the held-out ones. Where n is too
        small for the level, q is the largest residual.

        >>> p = Regression(torch.tensor([[1.0]]), torch.tensor(0.5), residuals=torch.tensor([0.5, 1.0, 2.0]))
        >>> [round(float(end), 3) for end in p.interval(0.5)]
        [0.293, 1.707]
        """
        if not 0 < level < 1:
            raise InputError(f"level={level} (allowed: between 0 and 1)")
        if self.residuals is None:
            return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)
        n = len(self.residuals)
        rank = min(n, math.ceil((n + 1) * level - 1e-9))
        half = self.residuals[rank - 1].to(self.mean) * self.variance.sqrt()
        return self.mean - half, self.mean + half

    def _repr_html_(self) -> str:
        """A table of the first rows for notebooks: mean, deviation and 90 % interval."""
        low, high = self.interval(0.9)
        columns = (self.mean, self.variance.sqrt(), low, high)
        headers, more = _more_columns(self, len(low))
        rows = [
            (i, *(f"{value:.4g}" for value in values), *more[i])
            for i, values in enumerate(zip(*(column.tolist() for column in columns), strict=True))
        ]
        return html_table(("row", "mean", "deviation", "5 %", "95 %", *headers), rows, SHOWN)

    def quantile(self, level: float) -> Tensor:
        """The quantile of the mixture, [B], by bisection of its distribution function."""
        b = self.scale.expand_as(self.samples)
        reach = b * (-math.log(2 * min(level, 1 - level)))  # of one component: |quantile - f_s|   [S, B]
        low, high = (self.samples - reach).amin(0), (self.samples + reach).amax(0)  # [B]
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            z = (middle - self.samples) / b  # [S, B]
            below = (
                torch.where(z < 0, z.clamp_max(0).exp() / 2, 1 - (-z.clamp_min(0)).exp() / 2).mean(0) < level
            )
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2


Prediction = Classification | Regression


def _more_columns(prediction: Prediction, rows: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and cells that a prediction adds to its table for notebooks."""
    columns = getattr(prediction, "trust_columns", None)
    return ((), [()] * rows) if columns is None else columns()


class Predictor(Protocol):
    """Anything that predicts with uncertainty: a model, a calibrated model, an ensemble."""

    def predict(self, inputs: Inputs) -> Prediction:
        """Predictions for all rows of `inputs`."""
        ...

    def with_samples(self, samples: int) -> "Predictor":
        """The same predictor with another number of samples; an ensemble passes it to every member.

        0 draws nothing and needs sampled attention. A predictor that has no such choice raises `InputError`.
        """
        raise InputError(
            f"samples={samples}: {type(self).__name__} does not offer that choice; SGPA and its ensembles "
            "do (0 or more), MFVI and MC dropout (1 or more); leave `samples` out"
        )
