"""The contract of a method: how to build a model, which loss to minimise, how to predict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from sgpa.core.errors import Check, InputError
from sgpa.core.inputs import Batch
from sgpa.core.saved_tensors import Shape, check_tensors
from sgpa.core.types import Loss, Predictor
from sgpa.data import Dataset
from sgpa.gp.likelihoods import CategoricalLikelihood
from sgpa.gp.objective import Progress
from sgpa.models import ModelConfig, Transformer
from sgpa.models.modes import evaluating

Tensors = Mapping[str, Tensor]
NOTHING: Tensors = {}


@dataclass(frozen=True)
class Calibration:
    """The rows that a method may read after training: those it was trained on and those held out."""

    train: Dataset
    validation: Dataset


class Method(Protocol):
    """A way to train a Transformer and to predict with it.

    A run calls, in this order:

        model = method.build(config)                                  # once for each of member_seeds(seed)
        method.initialise(model, first_batch)
        method.loss(model, batch, progress).total.backward()          # every step
        calibration = method.calibrate(model, Calibration(train, validation))
        predictor = method.predictor(model, calibration)
        ensemble_calibration = method.calibrate_ensemble(predictors, validation)
        method.combine(predictors, ensemble_calibration).predict(inputs)

    A subclass defines at least `id`, `build` and `loss`; the other members have defaults. Both calibrations
    are mappings of tensors, which the run saves and reads back.
    """

    id: str  # short name in files and on the command line
    regression: bool = True  # whether it can predict values, not only classes

    @property
    def trains(self) -> "Method":
        """The method whose trained model this one predicts with; a post-hoc method returns its base."""
        return self

    @property
    def predicts_directly(self) -> bool:
        """Whether the trained model is itself the predictor, without calibration or wrapper."""
        return type(self).predictor is Method.predictor

    def build(self, config: ModelConfig) -> Transformer:
        """A new model: `config` describes inputs, outputs and size, the method chooses the attention."""
        ...

    def initialise(self, model: Transformer, batch: Batch) -> None:
        """Set initial values that depend on data, once, before the first step."""
        del model, batch

    def loss(self, model: Transformer, batch: Batch, progress: Progress) -> Loss:
        """The loss of one batch, with its parts."""
        ...

    def calibrate(self, model: Transformer, data: Calibration) -> Tensors:
        """What `predictor` needs beside the trained model."""
        del model, data
        return NOTHING

    def predictor(self, model: Transformer, calibration: Tensors = NOTHING) -> Predictor:
        """The predictor of one trained model."""
        del calibration
        return model

    def member_seeds(self, seed: int) -> tuple[int, ...]:
        """The seeds of the models to train: one, or as many as an ensemble has members."""
        return (seed,)

    def calibrate_ensemble(self, predictors: Sequence[Predictor], validation: Dataset) -> Tensors:
        """What `combine` needs beside the predictors."""
        del predictors, validation
        return NOTHING

    def combine(self, predictors: Sequence[Predictor], calibration: Tensors = NOTHING) -> Predictor:
        """One predictor from those of all members."""
        del calibration
        if len(predictors) != 1:
            raise InputError(f"{self.id}: one model predicts, not {len(predictors)}")
        return predictors[0]


def predictor_of(
    method: Method,
    models: Sequence[Transformer],
    calibrated: Sequence[Tensors],
    combined: Tensors = NOTHING,
) -> Predictor:
    """The predictor of trained models, from the calibration of each and of all together."""
    pairs = zip(models, calibrated, strict=True)
    return method.combine([method.predictor(model, tensors) for model, tensors in pairs], combined)


@dataclass(frozen=True, kw_only=True)
class PostHoc(Method):
    """A method that predicts with a model trained by another method, `base`."""

    base: Method

    @property
    def trains(self) -> Method:
        """The method that trains the model."""
        return self.base.trains

    def build(self, config: ModelConfig) -> Transformer:
        """The model of the base."""
        return self.base.build(config)

    def initialise(self, model: Transformer, batch: Batch) -> None:
        """Initial values as the base sets them."""
        self.base.initialise(model, batch)

    def loss(self, model: Transformer, batch: Batch, progress: Progress) -> Loss:
        """The loss of the base."""
        return self.base.loss(model, batch, progress)


def base_check(base: Method) -> Check:
    """For `check_fields`: a post-hoc method would drop what the base adds on top of its model."""
    allowed = "a method whose trained model predicts by itself, such as mle or sgpa"
    return "base", base.id, base.predicts_directly, allowed


def check_classifier(model: Transformer, method: str) -> None:
    """Raise unless the model predicts classes."""
    if not isinstance(model.likelihood, CategoricalLikelihood):
        raise InputError(
            f"{method}: the model has a {model.config.likelihood} likelihood and predicts numbers; "
            f"{method} is for classes"
        )


def check_finite(values: Tensor, method: str, what: str, rows: str) -> None:
    """Raise for the first row that is not finite; rows are the last but one dimension of `values`."""
    bad = (~values.isfinite()).any(-1).reshape(-1, values.shape[-2]).any(0).nonzero()
    if len(bad):
        raise InputError(
            f"{method}: the {what} of {rows} row {int(bad[0])} are not finite; "
            "look for NaN in the inputs and in the trained weights"
        )


def held_out_outputs(
    model: Transformer, data: Calibration, method: str, *, dropout: bool = False
) -> tuple[Tensor, Tensor]:
    """Finite outputs [S, N, K] of a classifier for the validation rows, and their labels [N]."""
    check_classifier(model, method)
    targets = data.validation.targets.to(model.device)
    model.likelihood.check(targets, model.config.outputs)
    with evaluating(model, dropout=dropout):
        f = model.draw(data.validation.inputs)
    check_finite(f, method, "outputs", "validation")
    return f, targets


def check_calibrated(calibration: Tensors, shapes: Mapping[str, Shape], method: str) -> None:
    """Raise unless the calibration holds all tensors that the predictor needs, with these shapes."""
    if missing := [name for name in shapes if name not in calibration]:
        raise InputError(
            f"{method}: no {' and no '.join(missing)}; call calibrate first and pass its result to predictor"
        )
    check_tensors(calibration, shapes, method)
