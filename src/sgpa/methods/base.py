"""The contract of a method: how to build a model, what to minimise, how to predict."""

from typing import Protocol

from sgpa.models import ModelConfig, Transformer
from sgpa.objectives import Progress
from sgpa.types import Batch, Inputs, Loss, Prediction


class Predictor(Protocol):
    """Anything that predicts with uncertainty."""

    def predict(self, inputs: Inputs) -> Prediction:
        """Predictions for all rows of `inputs`."""


class Method(Protocol):
    """A way to train a Transformer and to predict with it."""

    @property
    def id(self) -> str:
        """Short name used in files and on the command line."""

    def build(self, config: ModelConfig) -> Transformer:
        """A fresh model for a task: `config` says what it reads and predicts, the method how it attends."""

    def initialise(self, model: Transformer, batch: Batch) -> None:
        """Set what is best set from data, once, before the first step (after a warm start)."""

    def loss(self, model: Transformer, batch: Batch, progress: Progress) -> Loss:
        """What to minimise on a batch."""

    def predictor(self, model: Transformer) -> Predictor:
        """How to predict with the trained model."""
