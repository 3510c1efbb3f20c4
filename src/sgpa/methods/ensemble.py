"""Ensembles: models trained by one method from several seeds, averaged (Lakshminarayanan et al. 2017)."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from sgpa.core.arguments import checked
from sgpa.core.errors import InputError, check_fields
from sgpa.core.inputs import Inputs
from sgpa.core.limits import scale_check
from sgpa.core.types import Classification, Prediction, Predictor, Regression
from sgpa.data import Dataset
from sgpa.gp.temperature import careful_temperature
from sgpa.methods.base import NOTHING, Calibration, PostHoc, Tensors, check_calibrated
from sgpa.models import Transformer

TINY = float(torch.finfo(torch.float32).tiny)  # stands in for a probability of zero

log = logging.getLogger(__name__)


@checked
@dataclass(frozen=True, kw_only=True)
class Ensemble(PostHoc):
    """`size` models of the method `base`, each trained and calibrated as `base` does it, averaged.

    A run trains one model for each of `member_seeds(seed)`, makes a `predictor` of each and passes all of
    them to `combine`.

    Args:
        base: the method of the members.
        size: number of members.
        fit_temperature: raise the mean probabilities to 1/T and normalise, with the T that minimises the
            NLL of the validation rows. The mean of calibrated models is under-confident.
        id: name in files and tables.

    Example:
        >>> ensemble = Ensemble(base=Mle(), size=3)
        >>> ensemble.member_seeds(0), ensemble.member_seeds(1)
        ((0, 1, 2), (3, 4, 5))
    """

    size: int = 5
    fit_temperature: bool = False
    id: str = "de"
    regression: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "regression", self.base.regression)
        check_fields("ensemble", [("size", self.size, self.size >= 1, "1 or more")])

    def member_seeds(self, seed: int) -> tuple[int, ...]:
        """`size` seeds; ensembles with different seeds share none."""
        return tuple(range(seed * self.size, (seed + 1) * self.size))

    def calibrate(self, model: Transformer, data: Calibration) -> Tensors:
        """The calibration of one member."""
        return self.base.calibrate(model, data)

    def predictor(self, model: Transformer, calibration: Tensors = NOTHING) -> Predictor:
        """The predictor of one member."""
        return self.base.predictor(model, calibration)

    def calibrate_ensemble(self, predictors: Sequence[Predictor], validation: Dataset) -> Tensors:
        """The temperature [], with `fit_temperature`; 1 where all validation rows have one label."""
        if not self.fit_temperature:
            return NOTHING
        mixture = EnsemblePredictor(tuple(predictors)).predict(validation.inputs)
        if not isinstance(mixture, Classification):
            raise InputError(f"{self.id}: only probabilities of classes can be tempered")
        log_p = _log(mixture)  # [N, K]
        targets = validation.targets.to(log_p.device)
        if bool((targets == targets[0]).all()):
            log.warning(
                "%s: all %d validation rows have label %d, for which no temperature is best; T = 1 is used. "
                "Hold out rows of two classes or more",
                self.id,
                len(targets),
                int(targets[0]),
            )
            return {"temperature": log_p.new_ones(())}
        return {"temperature": careful_temperature(log_p[None], targets)}

    def combine(self, predictors: Sequence[Predictor], calibration: Tensors = NOTHING) -> Predictor:
        """The predictor that averages all members."""
        if len(predictors) != self.size:
            raise InputError(
                f"{self.id}: an ensemble of {self.size} needs as many members, not {len(predictors)}"
            )
        if not self.fit_temperature:
            return EnsemblePredictor(tuple(predictors))
        check_calibrated(calibration, {"temperature": ()}, self.id)
        return EnsemblePredictor(tuple(predictors), float(calibration["temperature"]))


@dataclass(frozen=True)
class EnsemblePredictor(Predictor):
    """The equal mixture of the members' predictive distributions; probabilities p become p^(1/T)."""

    members: tuple[Predictor, ...]
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not self.members:
            raise InputError("an ensemble needs at least one member")
        check_fields("ensemble", [scale_check("temperature", self.temperature)])

    def predict(self, inputs: Inputs) -> Prediction:
        """The mixture of the members' predictions for all rows of `inputs`."""
        predictions = [member.predict(inputs) for member in self.members]
        classes = [p for p in predictions if isinstance(p, Classification)]
        values = [p for p in predictions if isinstance(p, Regression)]
        if classes and values:
            raise InputError("the members of an ensemble must all predict classes, or all predict values")
        if values:
            return mixture_of_values(values)
        mixture = mixture_of_classes(classes)
        return mixture if self.temperature == 1.0 else tempered(mixture, self.temperature)

    def with_samples(self, samples: int) -> "EnsemblePredictor":
        """The same ensemble, with that many samples of every member; the temperature stays."""
        return replace(self, members=tuple(member.with_samples(samples) for member in self.members))


def mixture_of_classes(members: Sequence[Classification]) -> Classification:
    """The mean of the members' probabilities and of their expected entropies.

    The mutual information is then the disagreement within and between members.
    """
    widths = sorted({p.probabilities.shape[-1] for p in members})
    if len(widths) > 1:
        raise InputError(f"the members of an ensemble predict different numbers of classes: {widths}")
    probabilities = torch.stack([p.probabilities for p in members]).mean(0)  # [B, K]
    expected_entropy = torch.stack([p.expected_entropy for p in members]).mean(0)  # [B]
    return Classification(probabilities, expected_entropy)


def tempered(p: Classification, temperature: float) -> Classification:
    """p^(1/T), normalised. The mutual information, the members' disagreement, does not change."""
    cooled = (_log(p) / temperature).softmax(-1).to(p.probabilities.dtype)  # [B, K]
    total = torch.special.entr(cooled).sum(-1)  # [B]
    return Classification(cooled, (total - p.mutual_information).clamp_min(0))


def _log(p: Classification) -> Tensor:
    return p.probabilities.double().clamp_min(TINY).log()  # [B, K]


def mixture_of_values(members: Sequence[Regression]) -> Regression:
    """All samples of all members, each with the scale of its member."""
    sizes = sorted({len(p.samples) for p in members})
    if len(sizes) > 1:
        raise InputError(
            f"the members of an ensemble have different numbers of samples: {sizes}; with equal numbers "
            "every member counts the same"
        )
    samples = torch.cat([p.samples for p in members])  # [S, B]
    scale = torch.cat([p.scale.expand(len(p.samples), 1) for p in members])  # [S, 1]
    return Regression(samples, scale)
