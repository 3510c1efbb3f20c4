"""Monte-Carlo dropout: dropout stays on when predicting (Gal & Ghahramani 2016)."""

from dataclasses import dataclass, field, replace

from sgpa.core.arguments import checked
from sgpa.core.errors import check_fields
from sgpa.core.inputs import Inputs
from sgpa.core.noise import samples_check
from sgpa.core.types import Prediction, Predictor
from sgpa.methods.base import NOTHING, Method, PostHoc, Tensors, base_check
from sgpa.methods.mle import Mle
from sgpa.models import ModelConfig, Transformer
from sgpa.models.modes import evaluating


@checked
@dataclass(frozen=True, kw_only=True)
class McDropout(PostHoc):
    """The mean prediction of several passes, each with its own dropout masks.

    The training steps are those of the base. The epoch is selected with dropout on, as predictions are
    made: with dropout on, a model keeps improving after it has begun to overfit with dropout off.

    Args:
        base: the method that trains; its model must predict by itself.
        samples: number of passes.

    Example:
        >>> method = McDropout(samples=20)
        >>> model = method.build(ModelConfig(embedding=PatchConfig(), dropout=0.1))  # doctest: +SKIP
        >>> method.predictor(model).predict(images).probabilities  # doctest: +SKIP
    """

    base: Method = field(default_factory=Mle)
    samples: int = 10

    id = "mcd"

    def __post_init__(self) -> None:
        checks = [base_check(self.base), samples_check(self.samples)]
        check_fields("mcd", checks)

    @property
    def trains(self) -> Method:
        """Itself: the epoch is selected with dropout on."""
        return self

    def build(self, config: ModelConfig) -> Transformer:
        """The model of the base; `config.dropout` must be above 0."""
        check_dropout(config.dropout)
        return self.base.build(config)

    def predictor(self, model: Transformer, calibration: Tensors = NOTHING) -> Predictor:
        """The model with dropout on."""
        del calibration
        return DropoutPredictor(model, self.samples)


def check_dropout(p: float) -> None:
    """Raise where the dropout rate is 0."""
    check_fields("mcd", [("dropout", p, p > 0, "above 0 and below 1: without it all samples are equal")])


@checked
@dataclass(frozen=True)
class DropoutPredictor(Predictor):
    """Predicts in evaluation mode but with dropout on; what precedes the first mask is computed once."""

    model: Transformer
    samples: int

    def __post_init__(self) -> None:
        check_dropout(self.model.dropout.p)

    def predict(self, inputs: Inputs, *, batch_size: int | None = None, seed: int = 0) -> Prediction:
        """Predictions for all rows; the same seed gives the same answer."""
        with evaluating(self.model, dropout=True):
            f = self.model.draw(inputs, samples=self.samples, batch_size=batch_size, seed=seed)  # [S, N, C]
        return self.model.likelihood.predict(f)

    def with_samples(self, samples: int) -> Predictor:
        """The same model with another number of passes, 1 or more."""
        return replace(self, samples=samples) if samples >= 1 else super().with_samples(samples)
