"""Affine calibration of logits, fitted on held-out rows: vector scaling and structured matrix scaling.

Temperature scaling (`temperature.py`) has one number, vector scaling two per class (Guo et al. 2017), matrix
scaling all K² + K. Both overfit a few hundred rows, so the structured form shrinks what goes beyond a
temperature, off-diagonal weights and intercepts first (Kull et al. 2019, Berta et al. 2025).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax
from torch import Tensor
from torch.nn.functional import cross_entropy

from sgpa.core.errors import InputError
from sgpa.gp.temperature import careful_temperature, fold_temperature

Floats = npt.NDArray[np.float64]

PENALTIES = (math.inf, 1000.0, 100.0, 10.0, 1.0, 0.1)  # strongest first; inf leaves the numbers at 0
FOLDS = 5
MAX_CLASSES = 100  # with more, off-diagonal weights stay 0
STEPS = 500  # of L-BFGS, per fit


@dataclass(frozen=True)
class Affine:
    """Logits f become f W' + b."""

    weight: Tensor  # W    [K, K]
    offset: Tensor  # b    [K]
    penalties: tuple[float, float] = (0.0, 0.0)  # of diagonal and intercept, of the other weights

    def logits(self, f: Tensor) -> Tensor:
        """Calibrated logits of f [N, K], in float64."""
        return f.double() @ self.weight.to(f.device).mT + self.offset.to(f.device)


def vector_scaling(f: Tensor, y: Tensor, *, seed: int = 0) -> Affine:
    """A scale and an offset for every class: `matrix_scaling` with M = 0.

    Shrunk in the same way, because two free numbers per class ruin the probabilities of a few hundred rows.

    Args:
        f: logits of held-out rows, [N, K].
        y: their classes, [N].
        seed: of the folds.

    Returns:
        Calibrated logits are `vector_scaling(f, y).logits(g)`.

    Example:
        >>> vector_scaling(torch.randn(90, 3), torch.arange(90) % 3).weight.shape
        torch.Size([3, 3])
    """
    return _shrunk(f, y, (math.inf,), seed)


def matrix_scaling(f: Tensor, y: Tensor, *, seed: int = 0) -> Affine:
    """Matrix scaling that is shrunk towards temperature scaling; cross-validation chooses how far.

    With z the logits, centred over classes and divided by their root mean square,

        softmax((a I + diag(d) + M) z + b),  M with a zero diagonal,

    minimises the sum of the NLL of all rows + λ₁/2 (‖d‖² + ‖b‖²) + λ₂/2 ‖M‖², a convex problem. λ₁, then λ₂,
    are those of `PENALTIES` with the lowest NLL of five folds; if both are infinite, only a temperature is
    left.

    Args:
        f: logits of held-out rows, [N, K].
        y: their classes, [N].
        seed: of the folds.

    Returns:
        Calibrated logits are `matrix_scaling(f, y).logits(g)`.

    Example:
        >>> matrix_scaling(torch.randn(90, 3), torch.arange(90) % 3).weight.shape
        torch.Size([3, 3])
    """
    return _shrunk(f, y, PENALTIES if f.ndim == 2 and f.shape[1] <= MAX_CLASSES else (math.inf,), seed)


def _shrunk(f: Tensor, y: Tensor, others: Sequence[float], seed: int) -> Affine:
    """The map with the penalties of the lowest NLL of five folds: first λ₁, then λ₂ among `others`."""
    check_labels(f, y)
    f, y = f.detach().double().cpu(), y.cpu()
    folds = list(_folds(f, y, seed))
    if not folds:  # nothing to choose penalties by: a row of each class, say
        return fit_matrix(f, y, (math.inf, math.inf))

    temperatures = [float(fold_temperature(f.unsqueeze(0), y)) for (f, y), _ in folds]

    def score(penalties: tuple[float, float]) -> float:
        losses = [
            cross_entropy(fit_matrix(*kept, penalties, T).logits(g), u).item()
            for (kept, (g, u)), T in zip(folds, temperatures, strict=True)
        ]
        return sum(losses) / len(losses)

    chosen = min(((penalty, math.inf) for penalty in PENALTIES), key=score)
    if len(others) > 1:
        chosen = min(((chosen[0], penalty) for penalty in others), key=score)
    return fit_matrix(f, y, chosen)


def fit_matrix(f: Tensor, y: Tensor, penalties: tuple[float, float], T: float | None = None) -> Affine:
    """The minimum for given λ₁ and λ₂, from the temperature T; `matrix_scaling` has the equation."""
    K = f.shape[1]
    f, y = f.double().cpu(), y.cpu()
    T = float(careful_temperature(f.unsqueeze(0), y)) if T is None else T
    if penalties == (math.inf, math.inf):
        return Affine(torch.eye(K, dtype=torch.float64) / T, torch.zeros(K, dtype=torch.float64), penalties)
    centred = np.asarray(f - f.mean(1, keepdim=True))
    rms = float(np.sqrt(np.square(centred).mean())) or 1.0
    objective = Objective(centred / rms, np.asarray(y), penalties)
    start = objective.start(rms / T)
    options = {"maxiter": STEPS, "ftol": 1e-13, "gtol": 1e-9, "maxcor": 20}
    optimum = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    W, b = objective.affine(optimum.x)
    centre = np.eye(K) - 1 / K  # W reads centred logits
    return Affine(torch.from_numpy(W @ centre / rms), torch.from_numpy(b), penalties)


class Objective:
    """Mean NLL with penalties, and its gradient, as a function of the flat (a, d, b, M).

    Numbers whose penalty is infinite are no variables.
    """

    def __init__(self, z: Floats, y: npt.NDArray[np.int64], penalties: tuple[float, float]) -> None:
        self.z, self.truth = z, np.eye(z.shape[1])[y]  # [N, K]
        self.penalties = penalties
        self.has_diagonal, self.has_matrix = (math.isfinite(penalty) for penalty in penalties)

    def start(self, a: float) -> Floats:
        """Temperature scaling."""
        K = self.z.shape[1]
        return np.concatenate([[a], np.zeros(2 * K * self.has_diagonal + K * K * self.has_matrix)])

    def affine(self, x: Floats) -> tuple[Floats, Floats]:
        """a I + diag(d) + M [K, K] and b [K]."""
        a, d, b, M = self._parts(x)
        return a * np.eye(len(d)) + np.diag(d) + M, b

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        """Value and gradient."""
        N, K = self.z.shape
        a, d, b, M = self._parts(x)
        log_p = log_softmax(self.z * (a + d) + self.z @ M.T + b, 1)  # [N, K]
        residual = (np.exp(log_p) - self.truth) / N
        first, second = (p / N if math.isfinite(p) else 0.0 for p in self.penalties)
        value = -(log_p * self.truth).sum() / N
        value += 0.5 * first * (d @ d + b @ b) + 0.5 * second * np.square(M).sum()
        along = (residual * self.z).sum(0)  # derivative by each diagonal entry    [K]
        slopes = [np.array([along.sum()])]
        if self.has_diagonal:
            slopes += [along + first * d, residual.sum(0) + first * b]
        if self.has_matrix:
            slopes.append(((residual.T @ self.z + second * M) * (1 - np.eye(K))).ravel())
        return float(value), np.concatenate(slopes)

    def _parts(self, x: Floats) -> tuple[float, Floats, Floats, Floats]:
        K = self.z.shape[1]
        d, b, rest = np.zeros(K), np.zeros(K), x[1:]
        if self.has_diagonal:
            d, b, rest = rest[:K], rest[K : 2 * K], rest[2 * K :]
        M = rest.reshape(K, K) if self.has_matrix else np.zeros((K, K))
        return float(x[0]), d, b, M


def check_labels(f: Tensor, y: Tensor) -> None:
    """Raise unless f is [N, K] with two classes or more, and y has two different labels in their range."""
    if f.ndim != 2 or f.shape[1] < 2 or y.shape != f.shape[:1]:
        raise InputError(f"scaling: logits {list(f.shape)} and labels {list(y.shape)}; allowed: [N, K], [N]")
    if not bool(f.isfinite().all()):
        raise InputError("scaling: the logits are not finite")
    if int(y.min()) < 0 or int(y.max()) >= f.shape[1]:
        raise InputError(
            f"scaling: labels from {int(y.min())} to {int(y.max())} (allowed: 0 to {f.shape[1] - 1})"
        )
    if bool((y == y[0]).all()):
        raise InputError(f"scaling: all {len(y)} rows have label {int(y[0])}; two classes or more are needed")


def _folds(f: Tensor, y: Tensor, seed: int) -> Iterator[tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]]:
    """Pairs of rows to fit and rows to test; the rows of every class are dealt out in turn."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    order = order[y[order].argsort(stable=True)]
    place = torch.empty_like(order)
    place[order] = torch.arange(len(y)) % FOLDS
    for i in range(min(FOLDS, len(y))):
        kept, out = place != i, place == i
        if len(y[kept].unique()) > 1:
            yield (f[kept], y[kept]), (f[out], y[out])
