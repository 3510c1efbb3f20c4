"""Test rows one by one: the scores of each, the confusion of classes, and the rows that are worth a look."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from sgpa.core.types import Classification, Prediction, Regression
from sgpa.evaluation.metrics import laplace_mixture_nlls, nlls

LEVELS = (0.5, 0.9)  # of intervals
MOST_ROWS = 5000  # rows whose scores are kept
MOST_CASES = 6  # rows that are shown in each group
MOST_CLASSES = 20  # of a confusion table
DIGITS = 5

Show = Callable[[int], dict[str, Any]]


def row_scores(prediction: Prediction, targets: Tensor) -> dict[str, list[float]]:
    """The scores of every test row, from which means have standard errors and methods are compared in pairs.

    Classes: `accuracy` (0 or 1) and `nll`. Values: `mae` (the absolute error), `nll`, and for each level
    whether the interval covers the value (0 or 1).
    """
    y = targets.cpu().numpy()[:MOST_ROWS]
    if isinstance(prediction, Classification):
        p = prediction.probabilities.cpu()[: len(y)]
        columns = {"accuracy": (p.numpy().argmax(1) == y).astype(int), "nll": nlls(p, y)}
    else:
        f = prediction.samples.cpu().double().numpy()
        nll = laplace_mixture_nlls(f, prediction.scale, targets.cpu().double().numpy())
        columns = {"mae": np.abs(f.mean(0) - targets.cpu().double().numpy())[: len(y)], "nll": nll[: len(y)]}
        columns |= {
            coverage_name(level): inside[: len(y)] for level, inside in covered(prediction, targets).items()
        }
    return {name: np.asarray(values).round(DIGITS).tolist() for name, values in columns.items()}


def covered(prediction: Regression, targets: Tensor) -> dict[float, np.ndarray]:
    """For each level, whether the interval of every row covers its value, [N] of 0 and 1."""
    y = targets.cpu().double()
    inside = {}
    for level in LEVELS:
        low, high = (end.cpu().double() for end in prediction.interval(level))
        inside[level] = ((low <= y) & (y <= high)).numpy().astype(int)
    return inside


def coverage_name(level: float) -> str:
    """The metric of the coverage of an interval.

    >>> coverage_name(0.9)
    'coverage_90'
    """
    return f"coverage_{round(100 * level)}"


def cases(prediction: Prediction, targets: Tensor, show: Show, classes: Sequence[str] = ()) -> dict[str, Any]:
    """The confusion table, and the rows that are worth a look.

    Classes: wrong answers with the highest probability (`surest_wrong`), and the answers with the lowest
    (`least_sure`). Values: the largest errors (`largest_errors`), and the widest intervals (`widest`).
    """
    if isinstance(prediction, Classification):
        return _of_classes(prediction, targets, show, classes)
    return _of_values(prediction, targets, show)


def _of_classes(
    prediction: Classification, targets: Tensor, show: Show, classes: Sequence[str]
) -> dict[str, Any]:
    p, y = prediction.probabilities.cpu().double().numpy(), targets.cpu().numpy()
    label, top = p.argmax(1), p.max(1)
    names = list(classes) or [str(i) for i in range(p.shape[1])]

    def case(row: int) -> dict[str, Any]:
        answer = {
            "answer": names[label[row]],
            "truth": names[y[row]],
            "probability": round(float(top[row]), 4),
        }
        return {"row": int(row), **answer, **show(int(row))}

    wrong = np.flatnonzero(label != y)
    chosen: dict[str, Any] = {
        "surest_wrong": [case(row) for row in wrong[np.argsort(-top[wrong], kind="stable")][:MOST_CASES]],
        "least_sure": [case(row) for row in np.argsort(top, kind="stable")[:MOST_CASES]],
    }
    if len(names) <= MOST_CLASSES:
        table = np.zeros((len(names), len(names)), int)  # true class, answer
        np.add.at(table, (y, label), 1)
        chosen |= {"classes": names, "confusion": table.tolist()}
    return chosen


def _of_values(prediction: Regression, targets: Tensor, show: Show) -> dict[str, Any]:
    y = targets.cpu().double().numpy()
    mean = prediction.mean.cpu().double().numpy()
    low, high = (end.cpu().double().numpy() for end in prediction.interval(LEVELS[-1]))

    def case(row: int) -> dict[str, Any]:
        numbers = {"answer": mean[row], "truth": y[row], "low": low[row], "high": high[row]}
        return {"row": int(row), **{k: round(float(v), DIGITS) for k, v in numbers.items()}, **show(int(row))}

    return {
        "largest_errors": [case(row) for row in np.argsort(-np.abs(mean - y), kind="stable")[:MOST_CASES]],
        "widest": [case(row) for row in np.argsort(low - high, kind="stable")[:MOST_CASES]],
    }
