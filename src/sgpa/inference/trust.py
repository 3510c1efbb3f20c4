"""When an answer should not be trusted: a limit on its uncertainty, chosen on held-out data."""

import numpy as np

from sgpa.core.types import Classification, Predictor
from sgpa.data import Dataset

KEPT = 0.95  # share of right answers that stay below the limit


def threshold(predictor: Predictor, validation: Dataset, kept: float = KEPT) -> float:
    """The score (entropy, or variance) that a share `kept` of the right answers on held-out rows stays below.

    Where numbers are predicted, every answer counts as right. Infinite where no answer is right.
    """
    found = predictor.predict(validation.inputs)
    score = found.score.cpu().double().numpy()
    if isinstance(found, Classification):
        score = score[(found.label.cpu() == validation.targets.cpu()).numpy()]
    return float(np.quantile(score, kept)) if len(score) else float("inf")


def saved_limit(value: float | None) -> float:
    """A threshold as it was saved: JSON knows no infinity."""
    return float("inf") if value is None else value
