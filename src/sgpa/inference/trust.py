"""A limit on the uncertainty of a trusted answer, chosen on held-out data."""

import numpy as np

from sgpa.core.types import Classification, Predictor
from sgpa.data import Dataset

TRUST_QUANTILE = 0.95  # share of right answers that are below the limit


def threshold(predictor: Predictor, validation: Dataset, quantile: float = TRUST_QUANTILE) -> float:
    """The `quantile` of the scores (entropy, or variance) of the right answers on held-out rows.

    For regression every answer counts as right. Infinite if no answer is right.
    """
    prediction = predictor.predict(validation.inputs)
    score = prediction.score.cpu().double().numpy()
    if isinstance(prediction, Classification):
        score = score[(prediction.label.cpu() == validation.targets.cpu()).numpy()]
    return float(np.quantile(score, quantile)) if len(score) else float("inf")


def saved_limit(value: float | None) -> float:
    """A threshold as read from JSON, where infinity is null."""
    return float("inf") if value is None else value
