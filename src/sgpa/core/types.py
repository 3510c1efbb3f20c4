"""The few values that travel between the parts of the package. All are frozen."""

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from sgpa.core.inputs import Inputs


@dataclass(frozen=True)
class Kl:
    """KL(q(u) || p(u)) of one layer, in nats, summed over heads and value dimensions."""

    g: Tensor  # the part of the global inducing points u_g, shared by all sequences   []
    a: Tensor  # the part of the amortised inducing points, one number per sequence     [..., B]

    @staticmethod
    def zero(like: Tensor) -> "Kl":
        """No divergence: what deterministic attention over `like` [..., B, T, E] reports."""
        return Kl(like.new_zeros(()), like.new_zeros(like.shape[:-2]))


@dataclass(frozen=True)
class Posterior:
    """Mean and marginal variance of q(f) for every head, token and value dimension."""

    mean: Tensor  # [..., H, T, V]
    variance: Tensor  # [..., H, T, V]


@dataclass(frozen=True)
class AttentionOutput:
    """What an attention layer returns: values like its input, and what they cost in nats."""

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
    """The negative ELBO with its parts kept apart."""

    nll: Tensor  # -E_q[log p(y | F^L)], mean over sequences   []
    kl_g: Tensor  # []
    kl_a: Tensor  # []
    weight_g: float | Tensor = 0.0
    weight_a: float | Tensor = 0.0

    @property
    def total(self) -> Tensor:
        """What is minimised."""
        return self.nll + self.weight_g * self.kl_g + self.weight_a * self.kl_a

    @property
    def parts(self) -> Tensor:
        """nll, kl_g, kl_a and their weighted sum, [4]."""
        return torch.stack([self.nll, self.kl_g, self.kl_a, self.total])


@dataclass(frozen=True)
class Classification:
    """Predicted class probabilities with their uncertainty split in two (all in nats)."""

    probabilities: Tensor  # averaged over samples                              [B, K]
    expected_entropy: Tensor  # what more data would not remove                 [B]
    entropy: Tensor = field(init=False)  # of the averaged probabilities        [B]

    def __post_init__(self) -> None:
        object.__setattr__(self, "entropy", torch.special.entr(self.probabilities).sum(-1))

    @property
    def mutual_information(self) -> Tensor:
        """Entropy minus expected entropy: what the model does not know, [B]."""
        return (self.entropy - self.expected_entropy).clamp_min(0)

    @property
    def label(self) -> Tensor:
        """Most probable class, [B]."""
        return self.probabilities.argmax(-1)

    @property
    def score(self) -> Tensor:
        """High where the input looks unfamiliar: the predictive entropy, [B]."""
        return self.entropy


@dataclass(frozen=True)
class Regression:
    """Predicted values as an equal mixture of Laplace(f_s, b_s), one component per sample."""

    samples: Tensor  # f_s                                        [S, B]
    scale: Tensor  # b, the same for all components or not        [] or [S, 1]

    @property
    def mean(self) -> Tensor:
        """[B]."""
        return self.samples.mean(0)

    @property
    def model_variance(self) -> Tensor:
        """Spread of the samples: what the model does not know, [B]."""
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
        """High where the input looks unfamiliar: the predictive variance, [B]."""
        return self.variance


Prediction = Classification | Regression


class Predictor(Protocol):
    """Anything that predicts with uncertainty."""

    def predict(self, inputs: Inputs) -> Prediction:
        """Predictions for all rows of `inputs`."""
