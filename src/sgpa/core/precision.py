"""Precision of products, and blocks in which no control flow depends on values."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from sgpa.core.errors import NumericalError

_unchecked: ContextVar[bool] = ContextVar("unchecked", default=False)


def full_precision(x: Tensor) -> torch.autocast:
    """A block in which autocast does not lower the precision of operations on x's device.

    Variances and KL are differences of nearly equal terms, which bfloat16 cannot represent.
    """
    return torch.autocast("cpu" if x.is_meta else x.device.type, enabled=False)


@contextmanager
def matrix_units(allowed: bool = True) -> Iterator[None]:
    """A block in which products of float32 matrices may, or may not, run in TF32 on a GPU."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def unchecked() -> Iterator[None]:
    """Inside the block no control flow depends on values; the caller checks the result."""
    token = _unchecked.set(True)
    try:
        yield
    finally:
        _unchecked.reset(token)


def recording(x: Tensor) -> bool:
    """Whether operations on x are compiled or captured, so that control flow must not depend on values."""
    return (
        torch.compiler.is_compiling()
        or _unchecked.get()
        or (x.is_cuda and torch.cuda.is_current_stream_capturing())
    )


def require_finite(message: Callable[[], str], *tensors: Tensor) -> None:
    """Raise unless every entry is finite. Skipped while a graph is being compiled or captured."""
    if tensors[0].is_meta or recording(tensors[0]):
        return
    if not torch.stack([x.isfinite().all() for x in tensors]).all():
        raise NumericalError(message())
