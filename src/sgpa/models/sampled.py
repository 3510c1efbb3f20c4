"""A trained model that predicts with a number of samples chosen after training."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sgpa.core.arguments import checked
from sgpa.core.errors import InputError
from sgpa.core.inputs import Inputs
from sgpa.core.noise import MAX_SAMPLES
from sgpa.core.types import Prediction, Predictor
from sgpa.models.linearised import check_sampled
from sgpa.models.modes import evaluating

if TYPE_CHECKING:
    from sgpa.models.transformer import Transformer


@checked
@dataclass(frozen=True)
class SampledPredictor(Predictor):
    """`model.predict` with `samples` fixed; 0 draws nothing. A model that samples nothing takes only 0."""

    model: "Transformer"
    samples: int

    def __post_init__(self) -> None:
        if not 0 <= self.samples <= MAX_SAMPLES:
            raise InputError(f"samples={self.samples} (allowed: 1 to {MAX_SAMPLES}, or 0 to draw nothing)")
        with evaluating(self.model):
            if self.samples == 0 and self.model.stochastic:
                check_sampled(self.model)
            elif self.samples and not self.model.stochastic:
                raise InputError(
                    f"samples={self.samples}: nothing is sampled by this model; leave `samples` out"
                )

    @checked
    def predict(self, inputs: Inputs, *, batch_size: int | None = None, seed: int = 0) -> Prediction:
        """Predictions for all rows; the same seed gives the same answer."""
        return self.model.predict(inputs, samples=self.samples, batch_size=batch_size, seed=seed)

    @checked
    def with_samples(self, samples: int) -> "SampledPredictor":
        """The same model with another number of samples."""
        return replace(self, samples=samples)
