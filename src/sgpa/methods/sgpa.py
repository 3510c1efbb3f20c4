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

    `place` puts the global inducing points on tokens of the training data before the first step. `quiet` is
    the share of the kernels' prior variance that training begins with, around the same means: below 1, what a
    point model has learned is disturbed less, and costs more KL. `samples` is how many draws estimate the
    ELBO of each sequence (the paper uses one). `drops` leaves dropout on when predicting, as MC dropout
    does: the MLPs are uncertain too, and attention's variance does not know of it.
    """

    attention: SgpaConfig = field(default_factory=SgpaConfig)
    kl: KlWeights = field(default_factory=KlWeights)
    place: bool = True
    quiet: float = 1.0
    samples: int = 1
    drops: bool = False

    id = "sgpa"

    def __post_init__(self) -> None:
        check_fields(
            "sgpa",
            [
                ("quiet", self.quiet, 0 < self.quiet <= 1, "above 0, up to 1"),
                ("samples", self.samples, self.samples >= 1, "1 or more"),
            ],
        )

    @property
    def plain(self) -> bool:
        """Not with dropout on."""
        return not self.drops

    def build(self, config: ModelConfig) -> Transformer:
        """The task's Transformer with sparse-GP attention."""
        check_fields(
            "sgpa", [("drops", self.drops, not self.drops or config.dropout > 0, "false: no dropout")]
        )
        return Transformer(replace(config, attention=self.attention))

    def initialise(self, model: Transformer, batch: Batch) -> None:
        """Lower the noise, then place the inducing points on data."""
        model.quieten(self.quiet)
        if self.place:
            model.place_inducing_points(batch.inputs)

    def loss(self, model: Transformer, batch: Batch, progress: Progress) -> Loss:
        """-ELBO with weighted parts."""
        output = model(batch.inputs, samples=None if self.samples == 1 else self.samples)
        return negative_elbo(output, model.likelihood, batch.targets, self.kl.at(progress))

    def predictor(self, model: Transformer, calibrated: Tensors = NOTHING) -> Predictor:
        """The model, with its dropout on where that is asked for."""
        del calibrated
        return DropoutPredictor(model, model.usual_samples) if self.drops else model
