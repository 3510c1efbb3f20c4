"""Weights of the views of novelty, from rows that were made unfamiliar on purpose."""

from collections.abc import Sequence

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

RIDGE = 0.03
LARGEST = 10.0  # standard deviations that count at most


def fit_weights(held_out: Tensor, unfamiliar: Sequence[Tensor]) -> Tensor | None:
    """Weights [columns], none of them negative, with which a logistic regression tells the rows apart.

    Every kind of unfamiliar rows counts alike. A column that unfamiliar rows do not raise gets the weight 0.

    Args:
        held_out: standardised columns of held-out rows, [N, columns].
        unfamiliar: of each kind of changed rows, [M, columns] each.

    Returns:
        The weights; None where no column tells the rows apart.

    Example:
        >>> x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
        >>> weights = fit_weights(x, [x + torch.tensor([3.0, -3.0])])
        >>> bool(weights[0] > 0), float(weights[1])
        (True, 0.0)
    """
    kinds = [each for each in unfamiliar if len(each)]
    if not kinds:
        return None
    x = np.asarray(torch.cat([held_out, *kinds]).double().cpu().clamp(-LARGEST, LARGEST))
    y = np.concatenate([np.zeros(len(held_out)), np.ones(len(x) - len(held_out))])
    share = [np.full(len(each), 1 / len(each) / len(kinds)) for each in kinds]
    row_weights = np.concatenate([np.full(len(held_out), 1 / len(held_out)), *share])

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        w, b = theta[:-1], theta[-1]
        a = x @ w + b
        residual = row_weights * (0.5 * (1 + np.tanh(0.5 * a)) - y)
        value = float(row_weights @ (np.logaddexp(0, a) - y * a) + 0.5 * RIDGE * w @ w)
        return value, np.append(x.T @ residual + RIDGE * w, residual.sum())

    bounds = [(0.0, None)] * x.shape[1] + [(None, None)]
    optimum = minimize(objective, np.zeros(x.shape[1] + 1), jac=True, bounds=bounds, method="L-BFGS-B")
    weights = torch.from_numpy(optimum.x[:-1])
    return weights if float(weights.sum()) > 1e-6 else None
