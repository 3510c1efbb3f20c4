"""Sparse Gaussian process attention, trained by the ELBO."""

from dataclasses import dataclass, field, replace

from sgpa.core.errors import check_fields
from sgpa.core.inputs import Batch
from sgpa.core.types import Loss, Predictor
from sgpa.gp.objective import KlWeights, Progress, negative_elbo
from sgpa.methods.base import NOTHING, Method, Tensors
from sgpa.methods.mc_dropout import DropoutPredictor
from sgpa.models import ModelConfig, SgpaConfig, Transformer


@dataclass(frozen=True, kw_only=True)
class Sgpa(Method):
    """Minimise the negative ELBO.

    `init_on_data` starts the global inducing points on tokens of the training data. `initial_variance_scale`
    is the share of the kernels' prior variance that training starts with, around the same means: below 1, a
    point model that training starts from is disturbed less, and costs more KL. `samples` draws estimate the
    ELBO of each sequence (the paper uses one). `dropout_at_prediction` leaves dropout on when predicting, as
    MC dropout does: the MLPs are uncertain too, and attention's variance does not cover that.
    """

    attention: SgpaConfig = field(default_factory=SgpaConfig)
    kl: KlWeights = field(default_factory=KlWeights)
    init_on_data: bool = True
    initial_variance_scale: float = 1.0
    samples: int = 1
    dropout_at_prediction: bool = False

    id = "sgpa"

    def __post_init__(self) -> None:
        check_fields(
            "sgpa",
            [
                (
                    "initial_variance_scale",
                    self.initial_variance_scale,
                    0 < self.initial_variance_scale <= 1,
                    "above 0, up to 1",
                ),
                ("samples", self.samples, self.samples >= 1, "1 or more"),
            ],
        )

    @property
    def plain(self) -> bool:
        """Not with dropout on."""
        return not self.dropout_at_prediction

    def build(self, config: ModelConfig) -> Transformer:
        """The task's Transformer with sparse-GP attention."""
        check_fields(
            "sgpa",
            [
                (
                    "dropout_at_prediction",
                    self.dropout_at_prediction,
                    not self.dropout_at_prediction or config.dropout > 0,
                    "false: no dropout",
                )
            ],
        )
        return Transformer(replace(config, attention=self.attention))

    def initialise(self, model: Transformer, batch: Batch) -> None:
        """Lower the noise, then place the inducing points on data."""
        model.scale_initial_variance(self.initial_variance_scale)
        if self.init_on_data:
            model.place_inducing_points(batch.inputs)

    def loss(self, model: Transformer, batch: Batch, progress: Progress) -> Loss:
        """-ELBO with weighted parts."""
        output = model(batch.inputs, samples=None if self.samples == 1 else self.samples)
        return negative_elbo(output, model.likelihood, batch.targets, self.kl.at(progress))

    def predictor(self, model: Transformer, calibrated: Tensors = NOTHING) -> Predictor:
        """The model, with its dropout on where that is asked for."""
        del calibrated
        return DropoutPredictor(model, model.usual_samples) if self.dropout_at_prediction else model
