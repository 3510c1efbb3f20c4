"""Checks of the arrays that metrics are computed from."""

from typing import Any

import numpy as np
import numpy.typing as npt

from sgpa.core.errors import InputError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SUM_TOLERANCE, SUM_TOLERANCE_BFLOAT16 = 1e-3, 8e-3  # of a row of probabilities


def dtype_of(values: npt.ArrayLike) -> str:
    """'float16', 'bfloat16', ... of an array or tensor; empty for a list."""
    return str(getattr(values, "dtype", "")).rpartition(".")[2]


def checked_array(name: str, values: npt.ArrayLike, ndim: int) -> Floats:
    """`values` as float64 with `ndim` axes, finite and not empty."""
    source: Any = values
    if hasattr(source, "detach"):  # a torch tensor, on any device and of any precision
        source = source.detach().cpu().double().numpy()
    array = np.asarray(source, dtype=np.float64)
    if array.ndim != ndim:
        raise InputError(f"{name} has shape {array.shape}; give it {ndim} axes")
    if array.size == 0:
        raise InputError(f"{name} is empty; a metric needs at least one input")
    if not np.isfinite(array).all():
        raise InputError(f"{name} holds NaN or infinity; look for the input that produced it")
    return array


def check_same_length(**arrays: Floats) -> None:
    """Raise unless all arrays have one value per input."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise InputError(f"lengths differ: {listed}; give one value per input")


def checked_classes(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Floats, Ints]:
    """Checked probabilities [N, K] and integer labels [N]."""
    p, y = checked_array("probabilities", probabilities, 2), checked_array("labels", labels, 1)
    check_same_length(probabilities=p, labels=y)
    error = np.abs(p.sum(1) - 1)
    if p.min() < 0 or error.max() > (
        SUM_TOLERANCE_BFLOAT16 if dtype_of(probabilities) == "bfloat16" else SUM_TOLERANCE
    ):
        row = int(error.argmax() if p.min() >= 0 else p.min(1).argmin())
        raise InputError(
            f"probabilities: row {row} has sum {p[row].sum():.4g} and minimum {p[row].min():.4g}; all must "
            "be at least 0 and sum to 1 over classes: pass softmax(logits)"
        )
    if not np.array_equal(y, np.floor(y)) or y.min() < 0 or y.max() >= p.shape[1]:
        raise InputError(f"labels must be whole numbers from 0 to {p.shape[1] - 1}")
    return p, y.astype(np.int64)


def checked_marks(
    scores: npt.ArrayLike, is_ood: npt.ArrayLike, weights: npt.ArrayLike | None
) -> tuple[Floats, ...]:
    """Checked scores, 0/1 marks and weights, each [N], with both kinds present."""
    s, out = checked_array("scores", scores, 1), checked_array("is_ood", is_ood, 1)
    w = np.ones_like(s) if weights is None else checked_array("weights", weights, 1)
    check_same_length(scores=s, is_ood=out, weights=w)
    if not np.isin(out, (0, 1)).all():
        raise InputError("is_ood must hold only 0 (in-distribution) and 1 (out-of-distribution)")
    if w.min() < 0 or not (w @ out > 0 and w @ (1 - out) > 0):
        raise InputError("is_ood needs both kinds of input with positive weight; only one was given")
    return s, out, w
