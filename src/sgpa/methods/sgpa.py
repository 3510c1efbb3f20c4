"""Sparse Gaussian process attention, trained by the ELBO."""

from dataclasses import dataclass, field, replace

from sgpa.errors import check_fields
from sgpa.methods.base import Method
from sgpa.models import ModelConfig, SgpaConfig, Transformer
from sgpa.objectives import KlWeights, Progress, negative_elbo
from sgpa.types import Batch, Loss


@dataclass(frozen=True, kw_only=True)
class Sgpa(Method):
    """Minimise the negative ELBO.

    `place` puts the global inducing points on tokens of the training data before the first step;
    `samples` is how many draws estimate the ELBO of each sequence (the paper uses one).
    """

    attention: SgpaConfig = field(default_factory=SgpaConfig)
    kl: KlWeights = field(default_factory=KlWeights)
    place: bool = True
    samples: int = 1

    id = "sgpa"

    def __post_init__(self) -> None:
        check_fields("sgpa", [("samples", self.samples, self.samples >= 1, "1 or more")])

    def build(self, config: ModelConfig) -> Transformer:
        """The task's Transformer with sparse-GP attention."""
        return Transformer(replace(config, attention=self.attention))

    def initialise(self, model: Transformer, batch: Batch) -> None:
        """Place the inducing points on data."""
        if self.place:
            model.place_inducing_points(batch.inputs)

    def loss(self, model: Transformer, batch: Batch, progress: Progress) -> Loss:
        """-ELBO with weighted parts."""
        output = model(batch.inputs, samples=None if self.samples == 1 else self.samples)
        return negative_elbo(output, model.likelihood, batch.targets, self.kl.at(progress))
