"""Sparse Gaussian process attention, trained by the ELBO."""

from dataclasses import dataclass, field, replace

from sgpa.attention.multihead import LEAST_SCALE, SCALES
from sgpa.core.arguments import checked
from sgpa.core.errors import check_fields
from sgpa.core.inputs import Batch
from sgpa.core.noise import samples_check
from sgpa.core.types import Loss, Predictor
from sgpa.gp.objective import KlWeights, Progress, negative_elbo
from sgpa.methods.base import NOTHING, Method, Tensors
from sgpa.methods.mc_dropout import DropoutPredictor
from sgpa.models import ModelConfig, SgpaConfig, Transformer


@checked
@dataclass(frozen=True, kw_only=True)
class Sgpa(Method):
    """Sparse GP attention: minimise the negative ELBO.

    Args:
        attention: form of the posterior, kernel and number of global inducing points.
        kl: weights of the two KL parts.
        init_on_data: start the global inducing points on tokens of the training data.
        initial_variance_scale: share of the kernels' prior variance that training starts with, around the
            same means. Below 1, training that starts from a trained MLE disturbs it less, at a higher KL.
        samples: draws that estimate the ELBO of each sequence; the paper uses one.
        dropout_at_prediction: keep dropout on when predicting, as MC dropout does. The variance of the
            attention does not cover the uncertainty of the MLPs.

    Example:
        >>> method = Sgpa(attention=SgpaConfig(num_global=32))
        >>> model = method.build(ModelConfig(embedding=PatchConfig()))  # doctest: +SKIP
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
                    LEAST_SCALE <= self.initial_variance_scale <= 1,
                    SCALES,
                ),
                samples_check(self.samples),
            ],
        )

    @property
    def predicts_directly(self) -> bool:
        """True, unless dropout stays on when predicting."""
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
                    "false, or a model with dropout above 0",
                )
            ],
        )
        return Transformer(replace(config, attention=self.attention))

    def initialise(self, model: Transformer, batch: Batch) -> None:
        """Scale the initial variance, then place the inducing points on tokens of the batch."""
        model.scale_initial_variance(self.initial_variance_scale)
        if self.init_on_data:
            model.place_inducing_points(batch.inputs)

    def loss(self, model: Transformer, batch: Batch, progress: Progress) -> Loss:
        """-ELBO with weighted parts."""
        output = model(batch.inputs, samples=None if self.samples == 1 else self.samples)
        return negative_elbo(output, model.likelihood, batch.targets, self.kl.at(progress))

    def predictor(self, model: Transformer, calibration: Tensors = NOTHING) -> Predictor:
        """The model, with dropout on if `dropout_at_prediction`."""
        del calibration
        return DropoutPredictor(model, model.usual_samples) if self.dropout_at_prediction else model
