"""Arrays and lists of numbers as what models read."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sgpa.core.errors import InputError
from sgpa.core.inputs import Features, Graphs, Inputs, Words

SHORT = (torch.int8, torch.int16, torch.int32, torch.uint16, torch.uint32, torch.uint64)


def as_inputs(inputs: Any, name: str = "inputs") -> Inputs:
    """Inputs as tensors, `Features`, `Graphs` or `Words`; numbers become float32, uint8 (pixels) or int64."""
    if isinstance(inputs, Features | Graphs | Words):
        return inputs
    x = as_tensor(inputs, name)
    if x.is_complex():
        raise InputError(f"{name} are complex numbers (allowed: real ones)")
    if x.dtype in (torch.float64, torch.float16, torch.bfloat16):
        return x.float()
    return x.long() if x.dtype in SHORT or (x.dtype == torch.uint8 and x.ndim <= 2) else x


def as_tensor(values: Any, name: str) -> Tensor:
    """A tensor, an array or a list of equal rows as a tensor; `name` is what errors call it."""
    if isinstance(values, Tensor):
        return values.detach()
    try:
        array = np.asarray(values)
        if not array.flags.writeable or any(step < 0 for step in array.strides):  # torch shares neither
            array = array.copy()
        return torch.as_tensor(array)
    except (TypeError, ValueError):
        kind = type(values).__name__
        raise InputError(
            f"{name} of type {kind} are no array (allowed: tensors, arrays, lists of equal rows)"
        ) from None
