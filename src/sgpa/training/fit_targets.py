"""Targets as `fit` takes them: classes as integers or words, or values; and whether they can be learned."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sgpa.core.errors import InputError, shown
from sgpa.data.arrays import as_tensor

log = logging.getLogger(__name__)

Classes = tuple[str, ...]
FEW_VALUES = 20  # different whole numbers that could be classes
ROWS_PER_VALUE = 5  # at least, where they could be
MOST_GAPS = 10  # times as many labels as there are different ones, from `LARGE_LABEL` on
LARGE_LABEL = 1000
LEAST_ROWS = 10  # from which the number of different classes says something


def as_targets(targets: Any, name: str = "targets") -> tuple[Tensor, Classes]:
    """Classes [N] int64 or values [N] float32, and the names of the classes where labels are words.

    >>> as_targets(["no", "yes", "no"])
    (tensor([0, 1, 0]), ('no', 'yes'))
    """
    if not isinstance(targets, Tensor | Sequence) and hasattr(targets, "__array__"):  # such as of pandas
        targets = np.asarray(targets)
    if (words := _words(targets)) is not None:
        for row, word in enumerate(words, 1):
            if _missing(word):
                raise InputError(
                    f"fit: {name} have no label in row {row} ({shown(word)}); fill it in or leave the row out"
                )
        named = [str(word) for word in words]
        classes = tuple(sorted(set(named)))
        index = {word: i for i, word in enumerate(classes)}
        return torch.tensor([index[word] for word in named]), classes
    y = as_tensor(targets, f"fit: {name}")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise InputError(f"fit: {name} has shape {list(y.shape)} (allowed: [N] or [N, 1])")
    return (y.float() if y.is_floating_point() else y.long()), ()


def check_labels(labels: Tensor, name: str = "targets") -> None:
    """Raise for whole numbers [N] that number no classes, and say where values look like classes."""
    rows = len(labels)
    if rows == 0 or labels.is_meta:
        return
    different = len(labels.unique())
    if labels.is_floating_point():
        whole = bool((labels == labels.round()).all())
        if whole and different <= min(FEW_VALUES, rows / ROWS_PER_VALUE):
            log.warning("fit: %s are read as values; for classes pass integers or words", name)
        return
    largest = int(labels.max())
    if rows >= LEAST_ROWS and different > rows / 2:
        raise InputError(
            f"fit: {name} are {different} different whole numbers in {rows} rows, too many to be classes; "
            "pass values as floats"
        )
    if largest > max(MOST_GAPS * different, LARGE_LABEL):
        raise InputError(
            f"fit: {name} have the label {largest}, but only {different} different ones; number the classes "
            f"0 to {different - 1}, or pass values as floats"
        )


def check_classes(targets: Tensor, start: str = "", names: Classes = ()) -> None:
    """Raise where all training rows have one class; values are no classes."""
    if not targets.is_floating_point() and bool((targets == targets[0]).all()):
        label = names[int(targets[0])] if names else int(targets[0])
        raise InputError(
            f"{start}all {len(targets)} training rows have label {label!r}; at least two classes are needed"
        )


def check_values(targets: Tensor, what: str) -> None:
    """Raise where all rows have one value; classes are no values."""
    if targets.is_floating_point() and bool((targets == targets[0]).all()):
        raise InputError(f"{what} have the target {float(targets[0]):g}; there is nothing to learn from them")


def _words(targets: Any) -> list[Any] | None:
    """The labels one by one where some are words, otherwise None."""
    if isinstance(targets, np.ndarray) and targets.dtype.kind in "USTO":
        labels = targets.reshape(-1).tolist()
    elif isinstance(targets, Sequence) and not isinstance(targets, str):
        labels = list(targets)
    else:
        return None
    return labels if any(isinstance(label, str) for label in labels) else None


def _missing(label: Any) -> bool:
    """Whether a label among words is none: None, NaN (as numpy writes it too), one of pandas, or blank."""
    if isinstance(label, str):
        return label.strip().lower() in ("", "nan")
    return label is None or label != label or type(label).__name__ in ("NAType", "NaTType")  # noqa: PLR0124
