"""Monte-Carlo dropout: dropout stays on when predicting (Gal & Ghahramani 2016)."""

from dataclasses import dataclass, field

from sgpa.core.errors import check_fields
from sgpa.core.inputs import Inputs
from sgpa.core.types import Prediction, Predictor
from sgpa.methods.base import NOTHING, Method, PostHoc, Tensors
from sgpa.methods.mle import Mle
from sgpa.methods.posthoc import plain_base
from sgpa.models import ModelConfig, Transformer
from sgpa.models.modes import evaluating


@dataclass(frozen=True, kw_only=True)
class McDropout(PostHoc):
    """Average the predictions of `samples` passes, each with its own dropout masks.

    The steps are the base's, but the epoch to keep is chosen by what is predicted here: with dropout on, a
    model goes on improving long after it began to overfit with dropout off.
    """

    base: Method = field(default_factory=Mle)
    samples: int = 10

    id = "mcd"

    def __post_init__(self) -> None:
        checks = [plain_base(self.base), ("samples", self.samples, self.samples >= 1, "1 or more")]
        check_fields("mcd", checks)

    @property
    def trains(self) -> Method:
        """Itself."""
        return self

    def build(self, config: ModelConfig) -> Transformer:
        """As the base does, with some dropout."""
        check_dropout(config.dropout)
        return self.base.build(config)

    def predictor(self, model: Transformer, calibrated: Tensors = NOTHING) -> Predictor:
        """The model with its dropout on."""
        del calibrated
        return DropoutPredictor(model, self.samples)


def check_dropout(p: float) -> None:
    """Raise where there is none."""
    check_fields("mcd", [("dropout", p, p > 0, "above 0 and below 1: without it all samples are equal")])


@dataclass(frozen=True)
class DropoutPredictor:
    """Predicts in evaluation mode but for dropout; nothing before the first mask is computed twice."""

    model: Transformer
    samples: int

    def __post_init__(self) -> None:
        check_dropout(self.model.dropout.p)

    def predict(self, inputs: Inputs, *, batch_size: int | None = None, seed: int = 0) -> Prediction:
        """Predictions for all rows; the same seed gives the same answer."""
        with evaluating(self.model, dropout=True):
            f = self.model.draw(inputs, samples=self.samples, batch_size=batch_size, seed=seed)  # [S, N, C]
        return self.model.likelihood.predict(f)
