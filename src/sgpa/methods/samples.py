"""How many samples a prediction averages, chosen after training."""

from dataclasses import dataclass, replace

from sgpa.core.errors import InputError
from sgpa.core.inputs import Inputs
from sgpa.core.types import Prediction, Predictor
from sgpa.methods.ensemble import EnsemblePredictor
from sgpa.methods.mc_dropout import DropoutPredictor
from sgpa.models import Transformer
from sgpa.models.linearised import check_sampled
from sgpa.models.modes import evaluating


@dataclass(frozen=True)
class SampledPredictor:
    """Predicts with so many samples of the model, or with none (`Transformer.predict`)."""

    model: Transformer
    samples: int

    def __post_init__(self) -> None:
        with evaluating(self.model):
            if self.samples == 0:
                check_sampled(self.model)
            elif not self.model.stochastic:
                raise InputError(
                    f"samples={self.samples}: nothing is sampled by this model; leave `samples` out"
                )

    def predict(self, inputs: Inputs, *, batch_size: int | None = None, seed: int = 0) -> Prediction:
        """Predictions for all rows."""
        return self.model.predict(inputs, samples=self.samples, batch_size=batch_size, seed=seed)


def with_samples(predictor: Predictor, samples: int) -> Predictor:
    """The same predictor with another number of samples; an ensemble's is that of each member.

    0 is for sampled attention only and draws nothing.
    """
    if samples < 0:
        raise InputError(f"samples={samples}: at least one is needed, or 0 to draw nothing")
    if isinstance(predictor, EnsemblePredictor):
        return EnsemblePredictor(tuple(with_samples(member, samples) for member in predictor.members))
    if isinstance(predictor, Transformer):
        return SampledPredictor(predictor, samples)
    if isinstance(predictor, SampledPredictor) or (isinstance(predictor, DropoutPredictor) and samples):
        return replace(predictor, samples=samples)
    raise InputError(
        f"samples={samples}: {type(predictor).__name__} does not offer that choice; SGPA and its ensembles "
        "do (0 or more), MFVI and MC dropout (1 or more); leave `samples` out"
    )
