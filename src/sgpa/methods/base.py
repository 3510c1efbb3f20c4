"""The contract of a method: how to build a model, what to minimise, how to predict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from sgpa.core.inputs import Batch
from sgpa.core.types import Loss, Predictor
from sgpa.data import Dataset
from sgpa.gp.objective import Progress
from sgpa.models import ModelConfig, Transformer

Tensors = Mapping[str, Tensor]
NOTHING: Tensors = {}


@dataclass(frozen=True)
class Calibration:
    """What a method may look at after training: the rows the model learned from and those held out."""

    train: Dataset
    validation: Dataset


class Method(Protocol):
    """A way to train a Transformer and to predict with it.

    A subclass says at least `id`, `build` and `loss`. What a method finds out after training is a mapping of
    tensors: `calibrate` makes it, a run saves it, `predictor` reads it.
    """

    id: str  # short name used in files and on the command line
    regression: bool = True  # whether it can also predict numbers

    @property
    def trains(self) -> "Method":
        """The method whose trained model this one predicts with: itself, unless it works after training."""
        return self

    @property
    def plain(self) -> bool:
        """Whether its trained model predicts by itself, with nothing on top of it."""
        return type(self).predictor is Method.predictor

    def build(self, config: ModelConfig) -> Transformer:
        """A fresh model for a task: `config` says what it reads and predicts, the method how it attends."""
        ...

    def initialise(self, model: Transformer, batch: Batch) -> None:
        """Set what is best set from data, once, before the first step (after a warm start)."""
        del model, batch

    def loss(self, model: Transformer, batch: Batch, progress: Progress) -> Loss:
        """What to minimise on a batch."""
        ...

    def calibrate(self, model: Transformer, data: Calibration) -> Tensors:
        """What the predictor needs beside the trained model."""
        del model, data
        return NOTHING

    def predictor(self, model: Transformer, calibrated: Tensors = NOTHING) -> Predictor:
        """How to predict with the trained model."""
        del calibrated
        return model

    def member_seeds(self, seed: int) -> tuple[int, ...]:
        """The seeds of the models it predicts with: one, unless it is an ensemble."""
        return (seed,)

    def combine(self, predictors: Sequence[Predictor], pooled: Tensors = NOTHING) -> Predictor:
        """How the predictors of those models predict together."""
        del pooled
        (only,) = predictors
        return only

    def pool(self, predictors: Sequence[Predictor], validation: Dataset) -> Tensors:
        """What `combine` needs beside the predictors, found out from what they predict together."""
        del predictors, validation
        return NOTHING


@dataclass(frozen=True, kw_only=True)
class PostHoc(Method):
    """A method that wraps a model trained by another one, `base`. A subclass says how it predicts."""

    base: Method

    @property
    def trains(self) -> Method:
        """The method that trains."""
        return self.base.trains

    def build(self, config: ModelConfig) -> Transformer:
        """As the base does."""
        return self.base.build(config)

    def initialise(self, model: Transformer, batch: Batch) -> None:
        """As the base does."""
        self.base.initialise(model, batch)

    def loss(self, model: Transformer, batch: Batch, progress: Progress) -> Loss:
        """As the base does."""
        return self.base.loss(model, batch, progress)
