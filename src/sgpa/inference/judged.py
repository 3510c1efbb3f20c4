"""Limits of trust of a trained predictor, and predictions that say which answers to trust."""

from collections.abc import Callable

import torch
from torch import Tensor

from sgpa.core.inputs import Inputs
from sgpa.core.judgement import JudgedClassification, JudgedRegression, TrustJudgement, with_judgement
from sgpa.core.precision import require_finite
from sgpa.core.types import Predictor, Regression
from sgpa.inference.novelty import NoveltyOf
from sgpa.inference.trust import TrustRule, choose
from sgpa.methods import Calibration
from sgpa.models import Transformer

MOSTLY_UNKNOWN = 2 / 3  # of the words of a text


def fit_trust(
    predictor: Predictor,
    model: Transformer,
    data: Calibration,
    *,
    max_error: float | None = None,
    residuals: Callable[[Regression], Tensor | None] | None = None,
) -> tuple[TrustRule, NoveltyOf | None]:
    """The limits of trust of a predictor, chosen on held-out rows, and the novelty of its inputs.

    Args:
        predictor: Calibrated.
        model: Its model, or the first of several, whose features novelty looks at.
        data: Training rows, for statistics, and held-out rows.
        max_error: As for `sgpa.inference.trust.choose`.
        residuals: For values, |y - mean| / deviation of the held-out rows where those of the predictor are
            too small because these rows chose the epoch; given the prediction of these rows.
    """
    held_out = data.validation
    novelty = NoveltyOf.fit(model, data.train, held_out)
    measured = None if novelty is None else novelty(held_out.inputs)
    prediction = predictor.predict(held_out.inputs)
    known = None
    if residuals is not None and isinstance(prediction, Regression):
        known = residuals(prediction)
    return choose(prediction, held_out.targets, measured, max_error=max_error, residuals=known), novelty


def judged(
    predictor: Predictor,
    rule: TrustRule,
    novelty: NoveltyOf | None,
    inputs: Inputs,
    unknown: Tensor | None = None,
) -> JudgedClassification | JudgedRegression:
    """The prediction for inputs, with which answers to trust.

    Args:
        predictor: A trained predictor.
        rule: Its limits of trust.
        novelty: Of its inputs; None where it is not measured.
        inputs: Rows to predict.
        unknown: The share of each input that the model cannot read [N]; what is left may look familiar.
    """
    prediction = rule.calibrated(predictor.predict(inputs))
    require_finite(lambda: "the model's answers are not finite; it was damaged", prediction.score)
    measured = None if novelty is None else novelty(inputs)
    if measured is not None:
        require_finite(lambda: "novelty is not finite; its statistics were damaged", measured)
        if unknown is not None:
            measured = torch.where(unknown > MOSTLY_UNKNOWN, 1.0, measured)
    reasons = tuple(rule.reasons(prediction.score, measured))
    trust = torch.tensor([not reason for reason in reasons], dtype=torch.bool)
    return with_judgement(prediction, TrustJudgement(trust, reasons, measured))
