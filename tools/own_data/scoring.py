"""Scores of classifiers, and the baselines that need scikit-learn."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

import sgpa
from sgpa.evaluation import metrics

CLASSIFICATION = ("accuracy ↑", "NLL ↓", "ECE ↓")


def classification_scores(p: Tensor, y: Tensor) -> list[float]:
    """Accuracy, NLL and ECE of probabilities [N, K]."""
    p = p.double().cpu()
    return [round(float(metric(p, y)), 4) for metric in (metrics.accuracy, metrics.nll, metrics.ece)]


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result, and the CPU seconds that it took."""
    started = time.process_time()
    result = work()
    return result, round(time.process_time() - started, 1)


def fitted(x: Tensor, y: Tensor, test_x: Tensor, test_y: Tensor, **arguments: Any) -> dict[str, list[float]]:
    """`sgpa.fit` with its defaults, and both of the models it chose from. One training made them all."""
    model, seconds = timed(lambda: sgpa.fit(x, y, **arguments))
    scores = {"sgpa.fit": [*_predicted(model, test_x, test_y), seconds]}
    names = {"sgpa": "SGPA", "ts": "point model + temperature", "mle": "point model"}
    for name, candidate in model.comparison.models.items():
        scores[names[name]] = [*_predicted(candidate, test_x, test_y), seconds]
    return scores


def baselines(x: Tensor, y: Tensor, test_x: Tensor, test_y: Tensor) -> dict[str, list[float]]:
    """Logistic regression on standardised pixels and a random forest of 500 trees."""
    flat, test_flat = (np.asarray(part.flatten(1), dtype=np.float64) for part in (x, test_x))
    scores = {}
    for name, model in {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
        "random forest": RandomForestClassifier(500, random_state=0),
    }.items():
        p, seconds = timed(lambda m=model: torch.tensor(m.fit(flat, y).predict_proba(test_flat)))  # type: ignore[misc]
        scores[name] = [*classification_scores(p, test_y), seconds]
    return scores


def _predicted(model: Any, x: Tensor, y: Tensor) -> list[float]:
    return classification_scores(model.predict(x).probabilities, y)
