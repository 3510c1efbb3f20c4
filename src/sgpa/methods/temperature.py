"""Temperature scaling: logits divided by one number that is fitted on held-out rows (Guo et al. 2017)."""

from dataclasses import dataclass, field

from sgpa.core.arguments import checked
from sgpa.core.errors import InputError, check_fields
from sgpa.core.inputs import Inputs
from sgpa.core.limits import scale_check
from sgpa.core.types import Prediction, Predictor
from sgpa.gp.temperature import careful_temperature
from sgpa.methods.base import (
    NOTHING,
    Calibration,
    Method,
    PostHoc,
    Tensors,
    base_check,
    check_calibrated,
    check_classifier,
    held_out_outputs,
)
from sgpa.methods.mle import Mle
from sgpa.models import Transformer
from sgpa.models.modes import evaluating


@checked
@dataclass(frozen=True, kw_only=True)
class TemperatureScaling(PostHoc):
    """p(y | x) = 1/S Σ_s softmax(f_s / T), with the T that minimises the NLL of the validation rows.

    The labels of a deterministic model (S = 1) do not change. T is at most 20, as the minimum is at infinity
    where outputs are unrelated to the labels; this is logged as a warning. Below 1 it has a prior, as the
    minimum is at 0 where all validation rows are right (`careful_temperature`).

    Args:
        base: the method that trains; its model must predict by itself.

    Example:
        >>> method = TemperatureScaling()
        >>> calibration = method.calibrate(model, Calibration(train, validation))  # doctest: +SKIP
        >>> method.predictor(model, calibration).predict(images)  # doctest: +SKIP
    """

    base: Method = field(default_factory=Mle)

    id = "ts"
    regression = False

    def __post_init__(self) -> None:
        check_fields(self.id, [base_check(self.base)])

    def calibrate(self, model: Transformer, data: Calibration) -> Tensors:
        """The temperature, []."""
        f, targets = held_out_outputs(model, data, self.id)
        if bool((targets == targets[0]).all()):
            raise InputError(
                f"{self.id}: all {len(targets)} validation rows have label {int(targets[0])}, for which no "
                "temperature is best; hold out rows of two classes or more"
            )
        return {"temperature": careful_temperature(f, targets)}

    def predictor(self, model: Transformer, calibration: Tensors = NOTHING) -> Predictor:
        """The model with its outputs divided by T."""
        check_classifier(model, self.id)
        check_calibrated(calibration, {"temperature": ()}, self.id)
        return Tempered(model, float(calibration["temperature"]))


@dataclass(frozen=True)
class Tempered(Predictor):
    """Predicts by 1/S Σ_s softmax(f_s / T)."""

    model: Transformer
    temperature: float

    def __post_init__(self) -> None:
        check_fields("ts", [scale_check("temperature", self.temperature)])

    def predict(self, inputs: Inputs, *, batch_size: int | None = None, seed: int = 0) -> Prediction:
        """Probabilities of all rows; the same seed gives the same answer."""
        with evaluating(self.model):
            f = self.model.draw(inputs, batch_size=batch_size, seed=seed)  # [S, N, K]
        return self.model.likelihood.predict(f / self.temperature)

    def with_samples(self, samples: int) -> Predictor:
        """The same predictor where nothing is sampled and nothing is to be sampled."""
        with evaluating(self.model):
            return self if samples == 0 and not self.model.stochastic else super().with_samples(samples)
