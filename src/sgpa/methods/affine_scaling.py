"""Vector scaling and matrix scaling as methods: logits f become W f + b, fitted on held-out rows."""

from abc import abstractmethod
from dataclasses import dataclass, field

from torch import Tensor

from sgpa.core.arguments import checked
from sgpa.core.errors import check_fields
from sgpa.core.inputs import Inputs
from sgpa.core.types import Prediction, Predictor
from sgpa.methods.base import (
    NOTHING,
    Calibration,
    Method,
    PostHoc,
    Tensors,
    check_calibrated,
    check_classifier,
    held_out_outputs,
)
from sgpa.methods.mle import Mle
from sgpa.methods.scaling import Affine, matrix_scaling, vector_scaling
from sgpa.models import Transformer
from sgpa.models.modes import evaluating


@dataclass(frozen=True, kw_only=True)
class AffineScaling(PostHoc):
    """What both forms share. Unlike a temperature they may change the labels."""

    base: Method = field(default_factory=Mle)

    regression = False

    def __post_init__(self) -> None:
        check_fields(self.id, [("base", self.base.id, isinstance(self.base, Mle), "mle")])

    @abstractmethod
    def fit(self, f: Tensor, y: Tensor) -> Affine:
        """The map for logits f [N, K] of held-out rows with labels y [N]."""

    def calibrate(self, model: Transformer, data: Calibration) -> Tensors:
        """W and b."""
        f, targets = held_out_outputs(model, data, self.id)
        map_ = self.fit(f[0], targets)
        return {"weight": map_.weight.cpu(), "offset": map_.offset.cpu()}

    def predictor(self, model: Transformer, calibration: Tensors = NOTHING) -> Predictor:
        """The model with its outputs mapped."""
        check_classifier(model, self.id)
        K = model.config.outputs
        check_calibrated(calibration, {"weight": (K, K), "offset": (K,)}, self.id)
        weight, offset = (calibration[name].to(model.device).double() for name in ("weight", "offset"))
        return AffinePredictor(model, Affine(weight, offset))


@checked
@dataclass(frozen=True, kw_only=True)
class VectorScaling(AffineScaling):
    """A scale and an offset for every class (Guo et al. 2017), shrunk as far as cross-validation says.

    Args:
        base: maximum likelihood, with kernel or dot-product attention.

    Example:
        >>> method = VectorScaling()
        >>> calibration = method.calibrate(model, Calibration(train, validation))  # doctest: +SKIP
        >>> method.predictor(model, calibration).predict(images)  # doctest: +SKIP
    """

    id = "vs"

    def fit(self, f: Tensor, y: Tensor) -> Affine:
        """By the penalised NLL."""
        return vector_scaling(f, y)


@checked
@dataclass(frozen=True, kw_only=True)
class MatrixScaling(AffineScaling):
    """A matrix and offsets, shrunk towards a temperature as far as cross-validation says (Berta et al. 2025).

    Args:
        base: maximum likelihood, with kernel or dot-product attention.

    Example:
        >>> method = MatrixScaling()
        >>> calibration = method.calibrate(model, Calibration(train, validation))  # doctest: +SKIP
        >>> method.predictor(model, calibration).predict(images)  # doctest: +SKIP
    """

    id = "ms"

    def fit(self, f: Tensor, y: Tensor) -> Affine:
        """By the penalised NLL."""
        return matrix_scaling(f, y)


@dataclass(frozen=True)
class AffinePredictor(Predictor):
    """Predicts by softmax(W f + b)."""

    model: Transformer
    affine: Affine

    def predict(self, inputs: Inputs, *, batch_size: int | None = None, seed: int = 0) -> Prediction:
        """Probabilities of all rows."""
        with evaluating(self.model):
            f = self.model.draw(inputs, batch_size=batch_size, seed=seed)  # [1, N, K]
        return self.model.likelihood.predict(self.affine.logits(f[0]).to(f.dtype).unsqueeze(0))

    def with_samples(self, samples: int) -> Predictor:
        """Itself, where nothing is to be sampled."""
        return self if samples == 0 else super().with_samples(samples)
