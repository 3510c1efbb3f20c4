"""SGPA whose last layer has a posterior variance too: a sparse GP over what the head reads.

Attention is a GP in every layer, the linear head is not: far from the training rows it answers as surely as
near them. Its GP is known at inducing points among the training rows. It is not sampled: its variance divides
the outputs of all samples, and two numbers are fitted on validation rows. No weight changes.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from sgpa.core.arguments import checked
from sgpa.core.errors import InputError, check_fields
from sgpa.core.inputs import Inputs
from sgpa.core.types import Classification, Prediction, Predictor
from sgpa.data import Dataset
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
from sgpa.methods.sgpa import Sgpa
from sgpa.models import Transformer
from sgpa.models.modes import evaluating
from sgpa.models.pooled_features import pooled_features
from sgpa.posthoc.answers import sampled
from sgpa.posthoc.feature_gp import FeatureGp
from sgpa.posthoc.scales import Scales, fit_classes

ROWS = 4000  # training rows that inducing points are chosen from


@checked
@dataclass(frozen=True, kw_only=True)
class GpHead(PostHoc):
    """p(y | x) = 1/S Σ_s softmax(f_s / T(x)) with T(x)² = τ² + π/8 σ² v(x), f_s the samples of SGPA.

    v(x) is the share of its prior variance that a GP over the head's inputs keeps at x. These inputs are
    those of one pass through the posterior means.

    Args:
        base: SGPA.

    Example:
        >>> method = GpHead(base=Sgpa(attention=SgpaConfig(num_global=32)))
        >>> calibration = method.calibrate(model, Calibration(train, validation))  # doctest: +SKIP
        >>> method.predictor(model, calibration).predict(images)  # doctest: +SKIP
    """

    base: Method = field(default_factory=Sgpa)

    id = "sgpah"
    regression = False

    def __post_init__(self) -> None:
        check_fields(self.id, [("base", self.base.id, isinstance(self.base, Sgpa), "sgpa")])

    def calibrate(self, model: Transformer, data: Calibration) -> Tensors:
        """Inducing points, τ² and σ²."""
        f, targets = held_out_outputs(model, data, self.id, dropout=self._dropout)
        gp = FeatureGp.fit(pooled_features(model, _some(data.train).inputs).head)
        v = gp.variance(pooled_features(model, data.validation.inputs).head)  # [N]
        with torch.enable_grad():
            scales = fit_classes(f.cpu(), v.unsqueeze(-1), targets.cpu())
        return {"scales.data": scales.data, "scales.layers": scales.layers, **gp.tensors("head")}

    def predictor(self, model: Transformer, calibration: Tensors = NOTHING) -> Predictor:
        """The model with the GP of its head."""
        check_classifier(model, self.id)
        check_calibrated(calibration, {"scales.data": (), "scales.layers": (1,)}, self.id)
        saved = {name: x.to(model.device) for name, x in calibration.items()}
        gp = FeatureGp.from_tensors(saved, "head", self.id)
        return GpHeadPredictor(
            model, gp, Scales(saved["scales.data"], saved["scales.layers"]), self._dropout, None
        )

    @property
    def _dropout(self) -> bool:
        """Whether SGPA predicts with dropout on."""
        assert isinstance(self.base, Sgpa)
        return self.base.dropout_at_prediction


@dataclass(frozen=True)
class GpHeadPredictor(Predictor):
    """Predicts from samples of SGPA and one pass through its posterior means."""

    model: Transformer
    gp: FeatureGp
    scales: Scales
    dropout: bool
    samples: int | None

    def predict(self, inputs: Inputs, *, batch_size: int | None = None, seed: int = 0) -> Prediction:
        """Probabilities of all rows; the same seed gives the same answer."""
        options = {"dropout": self.dropout, "samples": self.samples, "batch_size": batch_size, "seed": seed}
        f = draw(self.model, inputs, **options)  # type: ignore[arg-type]  # [S, N, K]
        head = pooled_features(self.model, inputs, batch_size=batch_size).head.to(f.device)
        return Classification(*sampled(f, self.gp.variance(head).unsqueeze(-1), self.scales))

    def with_samples(self, samples: int) -> Predictor:
        """The same with another number of samples, 1 or more."""
        if samples == 0:
            raise InputError("samples=0: a GP head divides the outputs of samples (allowed: 1 or more)")
        return replace(self, samples=samples) if samples > 0 else super().with_samples(samples)


def draw(model: Transformer, inputs: Inputs, *, dropout: bool, **options: int | None) -> Tensor:
    """Outputs of the model's samples, [S, N, K]."""
    with evaluating(model, dropout=dropout):
        return model.draw(inputs, **options)  # type: ignore[arg-type]


def _some(data: Dataset) -> Dataset:
    """At most `ROWS` rows, chosen at random."""
    return data[torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:ROWS]]
