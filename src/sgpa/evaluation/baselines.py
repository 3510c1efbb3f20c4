"""Simple baselines beside a trained model: the majority class and logistic regression, or the mean and ridge.

They are trained on the same rows and tested on the same rows as the model. The strength of the
regularisation is chosen on the held-out rows.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.sparse import issparse
from scipy.special import log_softmax, softmax

from sgpa.core.inputs import Inputs
from sgpa.core.types import Classification, Prediction, Predictor, Regression
from sgpa.data import Dataset, Splits
from sgpa.evaluation.simple_features import Features, simple_features

PENALTIES = tuple(10.0**k for k in (3, 2, 1, 0, -1, -2, -3))  # of the squared weights, strongest first
STEPS = 100  # of L-BFGS, per penalty
WORSE = 2  # penalties in a row without improvement that end the search
MOST_ROWS = 20_000  # training rows that a baseline reads


@dataclass(frozen=True)
class BaselineResult:
    """The answers of a baseline to the test rows, and what they cost."""

    id: str
    prediction: Prediction
    seconds: float  # features, choice of the penalty, training and prediction


def baselines(splits: Splits) -> list[BaselineResult]:
    """The simple baselines for a task.

    Args:
        splits: Training rows, held-out rows that choose the penalty, and test rows.

    Returns:
        For classes `majority` and `logistic`, for values `mean` and `ridge`.

    >>> [result.id for result in baselines(splits)]  # doctest: +SKIP
    ['majority', 'logistic']
    """
    train = splits.train[:MOST_ROWS]
    splits = Splits(train, splits.validation, splits.test)
    values = train.targets.is_floating_point()
    methods: dict[str, Callable[[Splits], Prediction]] = (
        {"mean": _mean, "ridge": _ridge} if values else {"majority": _majority, "logistic": _logistic}
    )
    results = []
    for name, method in methods.items():
        started = time.perf_counter()
        prediction = method(splits)
        results.append(BaselineResult(name, prediction, time.perf_counter() - started))
    return results


def _majority(splits: Splits) -> Classification:
    """The shares of the classes among the training rows, one row added to each class."""
    count = splits.train.targets.bincount(minlength=_classes(splits)).double() + 1
    return _classification(np.tile(np.asarray(count / count.sum()), (len(splits.test), 1)))


@dataclass(frozen=True)
class LogisticRegression(Predictor):
    """Logistic regression on simple features of inputs without padding, as a predictor.

    >>> LogisticRegression.fit(splits).predict(images).label  # doctest: +SKIP
    tensor([4, 1, 7])
    """

    train: Dataset  # whose mean and scale the features have
    weights: np.ndarray  # the last row is the bias   [F + 1, K]

    @staticmethod
    def fit(splits: Splits) -> "LogisticRegression":
        """Trained on the training rows, with the penalty of the smallest NLL of the held-out rows."""
        x, held_out = (part.astype(np.float32) for part in simple_features(splits.train, splits.validation))
        return LogisticRegression(splits.train, _choose_weights(x, held_out, splits))

    def predict(self, inputs: Inputs) -> Classification:
        """Class probabilities. Features of the training rows are computed at every call."""
        x = simple_features(self.train, Dataset(inputs, torch.zeros(len(inputs))))[1].astype(np.float32)
        return _classification(softmax(_linear(x, self.weights), 1))


def _logistic(splits: Splits) -> Classification:
    """Multinomial logistic regression; the penalty is the one with the smallest NLL of the held-out rows."""
    x, held_out, test = (part.astype(np.float32) for part in _features(splits))
    return _classification(softmax(_linear(test, _choose_weights(x, held_out, splits)), 1))


def _choose_weights(x: Features, held_out: Features, splits: Splits) -> np.ndarray:
    """The weights [F + 1, K] of the penalty with the smallest NLL of the held-out rows."""
    y, held_y = (np.asarray(part.targets) for part in (splits.train, splits.validation))
    weights = np.zeros((x.shape[1] + 1, _classes(splits)))  # the last row is the bias   [F + 1, K]
    best, chosen, worse = np.inf, weights, 0
    for penalty in PENALTIES:
        weights = _fit_logistic(x, y, weights, penalty)  # starts from the stronger penalty
        nll = -log_softmax(_linear(held_out, weights), 1)[np.arange(len(held_y)), held_y].mean()
        worse += 1
        if nll < best:
            best, chosen, worse = nll, weights, 0
        if worse == WORSE:
            break
    return chosen


def _fit_logistic(x: Features, y: np.ndarray, start: np.ndarray, penalty: float) -> np.ndarray:
    """Weights with the smallest NLL + penalty |w|² / 2N; the bias is free."""
    n, shape = len(y), start.shape
    truth = np.eye(shape[1], dtype=np.float32)[y]  # [N, K]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        w = flat.reshape(shape).astype(np.float32)
        log_p = log_softmax(_linear(x, w), 1)
        residual = (np.exp(log_p) - truth) / n
        slope = np.concatenate([x.T @ residual + penalty / n * w[:-1], residual.sum(0, keepdims=True)])
        value = -(log_p * truth).sum() / n + penalty / (2 * n) * np.square(w[:-1]).sum()
        return float(value), slope.ravel().astype(float)

    fitted = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
    return np.asarray(fitted.x).reshape(shape)


def _mean(splits: Splits) -> Regression:
    """The mean of the training rows; the scale is the mean distance of the held-out rows from it."""
    mean = float(splits.train.targets.double().mean())
    return _regression(np.full(len(splits.test), mean), np.full(len(splits.validation), mean), splits)


def _ridge(splits: Splits) -> Regression:
    """Ridge regression; the penalty is the one with the smallest absolute error of the held-out rows."""
    dense = [part.toarray() if issparse(part) else part for part in _features(splits)]
    mean, std = dense[0].mean(0), dense[0].std(0)
    x, held_out, test = ((part - mean) / np.where(std > 1e-9, std, np.inf) for part in dense)
    y, held_y = (np.asarray(part.targets, float) for part in (splits.train, splits.validation))
    centre = y.mean()
    if len(x) > x.shape[1]:  # the smaller of the two equal systems, [F, F] or [N, N]
        values, Q = np.linalg.eigh(x.T @ x)
        known, to_held_out, to_test = Q.T @ (x.T @ (y - centre)), held_out @ Q, test @ Q
    else:
        values, Q = np.linalg.eigh(x @ x.T)
        known, to_held_out, to_test = Q.T @ (y - centre), held_out @ x.T @ Q, test @ x.T @ Q
    best, answers = np.inf, (np.full(len(held_y), centre), np.full(len(test), centre))
    for penalty in PENALTIES:
        weights = known / (values.clip(0) + penalty * x.shape[1])
        predicted = centre + to_held_out @ weights, centre + to_test @ weights
        if (error := np.abs(predicted[0] - held_y).mean()) < best:
            best, answers = error, predicted
    return _regression(answers[1], answers[0], splits)


def _features(splits: Splits) -> list[Any]:
    return simple_features(splits.train, splits.validation, splits.test)


def _linear(x: Features, weights: np.ndarray) -> np.ndarray:
    return np.asarray(x @ weights[:-1] + weights[-1])


def _classes(splits: Splits) -> int:
    return 1 + max(int(part.targets.max()) for part in (splits.train, splits.validation, splits.test))


def _classification(p: np.ndarray) -> Classification:
    probabilities = torch.from_numpy(p)
    return Classification(probabilities, torch.special.entr(probabilities).sum(-1))


def _regression(test: np.ndarray, held_out: np.ndarray, splits: Splits) -> Regression:
    """Values with one scale: the mean absolute residual of the held-out rows."""
    b = np.abs(held_out - np.asarray(splits.validation.targets, float)).mean()
    return Regression(torch.from_numpy(test).unsqueeze(0), torch.tensor(max(float(b), 1e-12)))
