"""Configs of a model's linear maps and of its last layer."""

from dataclasses import dataclass

from torch import nn

from sgpa.core.arguments import checked
from sgpa.core.errors import check_fields
from sgpa.core.limits import scale_check, size_check
from sgpa.models.bayesian import BayesianLinear
from sgpa.models.random_features import RandomFeatureHead
from sgpa.models.spectral import SpectralLinear

MOST_ITERATIONS = 1_000  # of a training step
WIDEST_START = 100.0  # standard deviation of a weight; exp must hold it
HIDDEN = ("W_o", "up", "down")  # the attention's output projection and the two maps of an MLP


@checked
@dataclass(frozen=True, kw_only=True)
class PointConfig:
    """One number per weight."""

    def apply(self, model: nn.Module) -> None:
        """Leave the model's linear maps as they are."""


@checked
@dataclass(frozen=True, kw_only=True)
class MeanFieldConfig:
    """An independent normal distribution per weight of every linear map; the prior is N(0, prior_std²)."""

    prior_std: float = 1.0
    initial_std: float = 0.00672  # softplus(-5)

    def __post_init__(self) -> None:
        check_fields(
            "weights",
            [
                scale_check("prior_std", self.prior_std),
                scale_check("initial_std", self.initial_std, WIDEST_START),
            ],
        )

    def apply(self, model: nn.Module) -> None:
        """Replace every linear map, keeping its initial values as means."""
        for parent, name, linear in _linear_maps(model):
            setattr(parent, name, BayesianLinear.around(linear, self.prior_std, self.initial_std))


@checked
@dataclass(frozen=True, kw_only=True)
class SpectralConfig:
    """Hidden linear maps whose spectral norm is at most `bound`, by power iteration."""

    bound: float = 0.95
    iterations: int = 1

    def __post_init__(self) -> None:
        check_fields(
            "weights",
            [
                scale_check("bound", self.bound),
                size_check("iterations", self.iterations, MOST_ITERATIONS),
            ],
        )

    def apply(self, model: nn.Module) -> None:
        """Replace the hidden maps: the attention's output projections and those of the MLPs."""
        for parent, name, linear in _linear_maps(model):
            if name in HIDDEN:
                setattr(parent, name, SpectralLinear.around(linear, self.bound, self.iterations))


@checked
@dataclass(frozen=True, kw_only=True)
class LinearHeadConfig:
    """A linear map from features to outputs."""

    def build(self, width: int, outputs: int) -> nn.Module:
        """The last layer."""
        return nn.Linear(width, outputs)


@checked
@dataclass(frozen=True, kw_only=True)
class RandomFeatureConfig:
    """A GP over the features, approximated by random Fourier features; `ridge` is its noise variance."""

    features: int = 1024
    ridge: float = 1.0

    def __post_init__(self) -> None:
        check_fields(
            "head",
            [
                size_check("features", self.features),
                scale_check("ridge", self.ridge),
            ],
        )

    def build(self, width: int, outputs: int) -> nn.Module:
        """The last layer."""
        return RandomFeatureHead(width, outputs, self.features, self.ridge)


WeightsConfig = PointConfig | MeanFieldConfig | SpectralConfig
HeadConfig = LinearHeadConfig | RandomFeatureConfig


def _linear_maps(model: nn.Module) -> list[tuple[nn.Module, str, nn.Linear]]:
    """Every linear map with its owner and its name there."""
    return [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear
    ]
