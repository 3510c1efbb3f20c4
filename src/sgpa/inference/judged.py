"""Limits of trust of a trained predictor, and predictions that say which answers to trust."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from sgpa.core.inputs import Inputs
from sgpa.core.judgement import JudgedClassification, JudgedRegression, TrustJudgement, with_judgement
from sgpa.core.noise import by_row
from sgpa.core.precision import require_finite
from sgpa.core.types import Classification, Prediction, Predictor, Regression
from sgpa.data import Dataset
from sgpa.inference.novelty import NoveltyOf, pad_of
from sgpa.inference.shortened import lengths_of, parts_of
from sgpa.inference.trust import TrustRule, choose
from sgpa.methods import Calibration
from sgpa.models import Transformer

MOSTLY_UNKNOWN = 2 / 3  # of the words of a text
SHORTENED = 500  # held-out sequences whose parts are predicted
WHOLE = 0.25  # of the held-out sequences are so short that their answers get a temperature


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
    rule = choose(prediction, held_out.targets, measured, max_error=max_error, residuals=known)
    if isinstance(prediction, Classification):
        rule = _with_short_rows(rule, predictor, model, held_out)
    return rule, novelty


def _with_short_rows(
    rule: TrustRule, predictor: Predictor, model: Transformer, held_out: Dataset
) -> TrustRule:
    """The rule with what parts of held-out sequences say of short ones; images and graphs have no parts."""
    rows = held_out[torch.randperm(len(held_out), generator=torch.Generator().manual_seed(0))[:SHORTENED]]
    pad = pad_of(model)
    whole = lengths_of(rows.inputs, pad)
    if whole is None:
        return rule
    probabilities: list[Tensor] = []
    lengths: list[Tensor] = []
    for part, shorter in parts_of(rows.inputs, pad):
        answer = predictor.predict(part)
        assert isinstance(answer, Classification)
        probabilities.append(answer.probabilities.cpu())
        lengths.append(shorter)
    limit = float(torch.quantile(whole.double(), WHOLE))
    return rule.with_short_rows(
        torch.cat(probabilities), rows.targets.cpu().repeat(len(lengths)), torch.cat(lengths), limit
    )


def judged(
    predictor: Predictor,
    rule: TrustRule,
    novelty: NoveltyOf | None,
    inputs: Inputs,
    unknown: Tensor | None = None,
) -> JudgedClassification | JudgedRegression:
    """The prediction for inputs, with which answers to trust; that of a row does not depend on other rows.

    Args:
        predictor: A trained predictor.
        rule: Its limits of trust.
        novelty: Of its inputs; None where it is not measured.
        inputs: Rows to predict.
        unknown: The share of each input that the model cannot read [N]; what is left may look familiar.
    """
    lengths = _lengths(inputs, novelty)
    with by_row():
        prediction = rule.calibrated(predictor.predict(inputs), lengths)
    require_finite(lambda: "the model's answers are not finite; it was damaged", prediction.score)
    measured = None if novelty is None else novelty(inputs)
    if measured is not None:
        require_finite(lambda: "novelty is not finite; its statistics were damaged", measured)
        if unknown is not None:
            measured = torch.where(unknown > MOSTLY_UNKNOWN, 1.0, measured)
    reasons = tuple(rule.reasons(prediction.score, measured, lengths))
    trust = torch.tensor([not reason for reason in reasons], dtype=torch.bool)
    return with_judgement(prediction, TrustJudgement(trust, reasons, measured))


def make_judge(
    rule: TrustRule, novelty: NoveltyOf | None
) -> Callable[[Inputs, Prediction], tuple[np.ndarray, np.ndarray | None]]:
    """A function of inputs and predictions: which rows are trusted, and how novel they are, [N] each.

    The same rows are trusted as by `judged`.
    """

    def judge(inputs: Inputs, prediction: Prediction) -> tuple[np.ndarray, np.ndarray | None]:
        lengths, novel = _lengths(inputs, novelty), None if novelty is None else novelty(inputs)
        score = rule.calibrated(prediction, lengths).score
        trusted = np.array([not reason for reason in rule.reasons(score, novel, lengths)], bool)
        return trusted, None if novel is None else novel.numpy()

    return judge


def _lengths(inputs: Inputs, novelty: NoveltyOf | None) -> Tensor | None:
    return lengths_of(inputs, 0 if novelty is None else pad_of(novelty.model))
