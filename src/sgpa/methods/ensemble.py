"""Ensembles: models trained by one method from several seeds, averaged (Lakshminarayanan et al. 2017)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sgpa.core.errors import InputError, check_fields
from sgpa.core.inputs import Inputs
from sgpa.core.types import Classification, Prediction, Predictor, Regression
from sgpa.data import Dataset
from sgpa.methods.base import NOTHING, Calibration, Method, PostHoc, Tensors
from sgpa.methods.mle import Mle
from sgpa.methods.posthoc import check_calibrated
from sgpa.methods.sgpa import Sgpa
from sgpa.methods.temperature import best_temperature
from sgpa.models import Transformer

TINY = float(torch.finfo(torch.float32).tiny)  # what a probability of zero counts as


@dataclass(frozen=True, kw_only=True)
class Ensemble(PostHoc):
    """`size` models of the method `base`. Each is trained, calibrated and read as `base` does it.

    Whoever runs it trains one model for each of `member_seeds`, makes the `predictor` of each and hands all
    of them to `combine`. With `fit_temperature` the averaged probabilities get a temperature, the
    best for validation rows: the average of models that are each calibrated is under-confident.
    """

    size: int = 5
    fit_temperature: bool = False
    id: str = "de"
    regression: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "regression", self.base.regression)
        check_fields("ensemble", [("size", self.size, self.size >= 1, "1 or more")])

    def member_seeds(self, seed: int) -> tuple[int, ...]:
        """The members' own seeds: ensembles of different seeds share none."""
        return tuple(range(seed * self.size, (seed + 1) * self.size))

    def calibrate(self, model: Transformer, data: Calibration) -> Tensors:
        """What the predictor of one member needs."""
        return self.base.calibrate(model, data)

    def predictor(self, model: Transformer, calibrated: Tensors = NOTHING) -> Predictor:
        """How one member predicts."""
        return self.base.predictor(model, calibrated)

    def combine(self, predictors: Sequence[Predictor], pooled: Tensors = NOTHING) -> Predictor:
        """How all members predict together."""
        if len(predictors) != self.size:
            raise InputError(
                f"{self.id}: an ensemble of {self.size} needs as many members, not {len(predictors)}"
            )
        if not self.fit_temperature:
            return EnsemblePredictor(tuple(predictors))
        check_calibrated(pooled, ("temperature",), self.id)
        return EnsemblePredictor(tuple(predictors), float(pooled["temperature"]))

    def pool(self, predictors: Sequence[Predictor], validation: Dataset) -> Tensors:
        """The temperature, [], where there is to be one."""
        if not self.fit_temperature:
            return NOTHING
        found = EnsemblePredictor(tuple(predictors)).predict(validation.inputs)
        if not isinstance(found, Classification):
            raise InputError(f"{self.id}: only probabilities of classes can be tempered")
        log_p = _log(found)  # [N, K]
        return {"temperature": best_temperature(log_p[None], validation.targets.to(log_p.device))}


def deep_ensemble(base: Method | None = None, size: int = 5) -> Ensemble:
    """An ensemble of point models."""
    return Ensemble(base=base or Mle(), size=size, id="de")


def sgpa_ensemble(base: Method | None = None, size: int = 5) -> Ensemble:
    """An ensemble of sparse-GP Transformers."""
    return Ensemble(base=base or Sgpa(), size=size, id="sgpae")


@dataclass(frozen=True)
class EnsemblePredictor:
    """Averages the members' predictive distributions; every member counts the same.

    Probabilities p become p^(1/T), normalised.
    """

    members: tuple[Predictor, ...]
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not self.members:
            raise InputError("an ensemble needs at least one member")

    def predict(self, inputs: Inputs) -> Prediction:
        """The mixture of the members' predictions for all rows of `inputs`."""
        found = [member.predict(inputs) for member in self.members]
        classes = [p for p in found if isinstance(p, Classification)]
        values = [p for p in found if isinstance(p, Regression)]
        if classes and values:
            raise InputError("the members of an ensemble must all predict classes, or all predict values")
        if values:
            return mixture_of_values(values)
        mixture = mixture_of_classes(classes)
        return mixture if self.temperature == 1.0 else tempered(mixture, self.temperature)


def mixture_of_classes(members: Sequence[Classification]) -> Classification:
    """The mean of the members' probabilities.

    The expected entropy is the mean of the members': what is left of the entropy, the mutual information, is
    the disagreement within and between members.
    """
    widths = sorted({p.probabilities.shape[-1] for p in members})
    if len(widths) > 1:
        raise InputError(f"the members of an ensemble predict different numbers of classes: {widths}")
    probabilities = torch.stack([p.probabilities for p in members]).mean(0)  # [B, K]
    expected_entropy = torch.stack([p.expected_entropy for p in members]).mean(0)  # [B]
    return Classification(probabilities, expected_entropy)


def tempered(p: Classification, temperature: float) -> Classification:
    """p^(1/T), normalised. How far members disagree, the mutual information, stays as it is."""
    cooled = (_log(p) / temperature).softmax(-1).to(p.probabilities.dtype)
    total = torch.special.entr(cooled).sum(-1)
    return Classification(cooled, (total - p.mutual_information).clamp_min(0))


def _log(p: Classification) -> Tensor:
    return p.probabilities.double().clamp_min(TINY).log()


def mixture_of_values(members: Sequence[Regression]) -> Regression:
    """All samples of all members, each with its own member's scale."""
    sizes = sorted({len(p.samples) for p in members})
    if len(sizes) > 1:
        raise InputError(
            f"the members of an ensemble have different numbers of samples: {sizes}; with equal numbers "
            "every member counts the same"
        )
    samples = torch.cat([p.samples for p in members])  # [S, B]
    scale = torch.cat([p.scale.expand(len(p.samples), 1) for p in members])  # [S, 1]
    return Regression(samples, scale)
