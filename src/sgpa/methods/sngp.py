"""Spectral-normalised neural Gaussian process (Liu et al. 2020): bounded hidden maps, a GP as last layer."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from sgpa.core.arguments import checked
from sgpa.core.errors import InputError, NumericalError, check_fields
from sgpa.core.inputs import Batch, Inputs
from sgpa.core.limits import LARGEST
from sgpa.core.noise import samples_check
from sgpa.core.saved_tensors import Shape
from sgpa.core.types import Loss, Prediction, Predictor
from sgpa.gp.objective import Progress, negative_elbo
from sgpa.methods.base import NOTHING, Calibration, Method, Tensors, check_calibrated
from sgpa.models import (
    DotProductConfig,
    KernelAttentionConfig,
    ModelConfig,
    PointConfig,
    RandomFeatureConfig,
    SpectralConfig,
    Transformer,
)
from sgpa.models.batches import in_batches
from sgpa.models.modes import evaluating
from sgpa.models.random_features import RandomFeatureHead


@checked
@dataclass(frozen=True, kw_only=True)
class Sngp(Method):
    """Maximum likelihood with bounded hidden maps; one pass after training gives the last layer's posterior.

    The posterior has the precision of a Gaussian likelihood, one for all classes, or with
    `covariance="laplace"` that of the softmax likelihood at the trained weights, one per class. Logits
    ~ N(μ, v) become probabilities

    - `predictive="monte-carlo"`: as the mean of softmax(μ + √v ε) over `samples` draws of ε, one per class;
    - `predictive="mean-field"`: as softmax(μ / √(1 + λ v)), λ = `mean_field_factor`. π/8 comes from the
      probit approximation of the logistic function; Liu et al. tune λ instead.

    Args:
        attention: `KernelAttentionConfig()` or `DotProductConfig()`.
        spectral: bound of the hidden maps; `PointConfig()` leaves them unbounded.
        head: the random-feature GP.
        covariance: "gaussian" or "laplace".
        predictive: "monte-carlo" or "mean-field".
        samples: number of draws.
        mean_field_factor: λ.

    Example:
        >>> method = Sngp(predictive="mean-field")
        >>> calibration = method.calibrate(model, Calibration(train, validation))  # doctest: +SKIP
        >>> method.predictor(model, calibration).predict(images)  # doctest: +SKIP
    """

    attention: KernelAttentionConfig | DotProductConfig = field(default_factory=KernelAttentionConfig)
    spectral: SpectralConfig | PointConfig = field(default_factory=SpectralConfig)
    head: RandomFeatureConfig = field(default_factory=RandomFeatureConfig)
    covariance: Literal["gaussian", "laplace"] = "gaussian"
    predictive: Literal["monte-carlo", "mean-field"] = "monte-carlo"
    samples: int = 10
    mean_field_factor: float = math.pi / 8

    id = "sngp"
    regression = False

    def __post_init__(self) -> None:
        factor = self.mean_field_factor
        check_fields(
            "sngp",
            [
                ("covariance", self.covariance, self.covariance in INFORMATION, ", ".join(INFORMATION)),
                ("predictive", self.predictive, self.predictive in PREDICTIVES, ", ".join(PREDICTIVES)),
                samples_check(self.samples),
                ("mean_field_factor", factor, 0 <= factor <= LARGEST, f"0 to {LARGEST:g}"),
            ],
        )

    def build(self, config: ModelConfig) -> Transformer:
        """The task's Transformer with bounded maps and random features."""
        kind = config.likelihood
        check_fields("sngp", [("likelihood", kind, kind == "categorical", "categorical")])
        return Transformer(replace(config, attention=self.attention, weights=self.spectral, head=self.head))

    def loss(self, model: Transformer, batch: Batch, progress: Progress) -> Loss:
        """-log p(y | x) at the mean of the GP."""
        del progress
        return negative_elbo(model(batch.inputs), model.likelihood, batch.targets)

    @torch.no_grad()
    def calibrate(self, model: Transformer, data: Calibration) -> Tensors:
        """Λ^-1 in float64, from one pass over the training rows: [F, F], or [K, F, F] for each class."""
        head = gp_head(model)

        def information(rows: Inputs) -> Tensor:
            phi = head.features(model.features(rows)[0])  # [B, F]
            return INFORMATION[self.covariance](phi.double(), head.output(phi).double())

        prior = head.ridge * torch.eye(head.W.shape[0], dtype=torch.float64, device=model.device)  # [F, F]
        with evaluating(model):
            precision = sum(in_batches(model, information, data.train.inputs), start=prior)
        L, info = torch.linalg.cholesky_ex(precision)
        if (info != 0).any():
            raise NumericalError(
                f"sngp: the precision of the last layer cannot be inverted with ridge={head.ridge:g}; raise "
                "the ridge, or look for features that are not finite"
            )
        return {"covariance": torch.cholesky_inverse(L)}

    def predictor(self, model: Transformer, calibration: Tensors = NOTHING) -> Predictor:
        """The predictor; without calibration (during training) it uses the mean of the GP alone."""
        if calibration is NOTHING:
            return SngpPredictor(model, self)
        classes: Shape = ("K",) if self.covariance == "laplace" else ()
        check_calibrated(calibration, {"covariance": (*classes, "F", "F")}, self.id)
        return SngpPredictor(model, self, calibration["covariance"])


@dataclass(frozen=True)
class SngpPredictor(Predictor):
    """Predicts with the mean of the last layer's GP and, once calibrated, its variance."""

    model: Transformer
    method: Sngp
    covariance: Tensor | None = None  # Λ^-1     [F, F] or [K, F, F]

    def __post_init__(self) -> None:
        features, classes = gp_head(self.model).W.shape[0], self.model.config.outputs
        allowed = ((features, features), (classes, features, features))
        if self.covariance is not None and tuple(self.covariance.shape) not in allowed:
            shape = list(self.covariance.shape)
            raise InputError(f"sngp: the covariance is {shape}, the model has {features} random features")

    @torch.no_grad()
    def predict(self, inputs: Inputs, *, batch_size: int | None = None, seed: int = 0) -> Prediction:
        """Predictions for all rows; the same seed gives the same answer."""
        with evaluating(self.model):
            parts = list(in_batches(self.model, self.moments, inputs, rows=batch_size))
        mean, variance = torch.cat(parts, 1)  # [N, K] each
        if self.covariance is None:
            return self.model.likelihood.predict(mean.unsqueeze(0))
        f = PREDICTIVES[self.method.predictive](mean, variance, self.method, seed)  # [S, N, K]
        return self.model.likelihood.predict(f)

    def moments(self, inputs: Inputs) -> Tensor:
        """Mean and variance of every logit, one after the other, [2, B, K]."""
        head = gp_head(self.model)
        phi = head.features(self.model.features(inputs)[0])  # [B, F]
        mean = head.output(phi)  # [B, K]
        if self.covariance is None:
            return torch.stack([mean, torch.zeros_like(mean)])
        variance = head.variance(phi, self.covariance.to(phi.device))  # [B, 1 or K]
        return torch.stack([mean, variance.to(mean.dtype).expand_as(mean)])


def gp_head(model: Transformer) -> RandomFeatureHead:
    """The model's last layer, which must be a GP."""
    if not isinstance(model.head, RandomFeatureHead):
        raise InputError("sngp: the model's last layer has no random features; build it with Sngp().build")
    return model.head


def gaussian_information(phi: Tensor, f: Tensor) -> Tensor:
    """Σ φφ' over rows φ [B, F]: what a Gaussian likelihood adds to the precision, [F, F]."""
    del f
    return phi.mT @ phi


def laplace_information(phi: Tensor, f: Tensor) -> Tensor:
    """Σ p_k (1 - p_k) φφ' for each class k with p = softmax(f), f [B, K]; [K, F, F]."""
    p = f.softmax(-1)  # [B, K]
    return torch.stack([(phi * w.unsqueeze(-1)).mT @ phi for w in (p * (1 - p)).mT])


def monte_carlo(mean: Tensor, variance: Tensor, method: Sngp, seed: int) -> Tensor:
    """Draws of the logits, [S, N, K]."""
    generator = torch.Generator(mean.device).manual_seed(seed)
    shape = (method.samples, *mean.shape)
    epsilon = torch.randn(shape, generator=generator, dtype=mean.dtype, device=mean.device)
    return mean + variance.sqrt() * epsilon


def mean_field(mean: Tensor, variance: Tensor, method: Sngp, seed: int) -> Tensor:
    """Logits whose softmax is close to the mean of the softmax, [1, N, K]."""
    del seed
    return (mean / (1 + method.mean_field_factor * variance).sqrt()).unsqueeze(0)


INFORMATION: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gaussian": gaussian_information,
    "laplace": laplace_information,
}
PREDICTIVES: dict[str, Callable[[Tensor, Tensor, Sngp, int], Tensor]] = {
    "monte-carlo": monte_carlo,
    "mean-field": mean_field,
}
