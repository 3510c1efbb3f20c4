"""Errors of code that is not part of this package, such as a user's model or data set."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sgpa.core.errors import InputError, SgpaError, first_line

ERRORS = (
    TypeError, ValueError, RuntimeError, LookupError, AttributeError, ArithmeticError, AssertionError,
)  # fmt: skip


@contextmanager
def errors_of(what: str) -> Iterator[None]:
    """A block whose errors become one line that begins with `what`; the error itself stays as the cause.

    Memory that runs out is passed on as it is.

    >>> with errors_of("fit: the data set cannot be read"):
    ...     [][0]
    Traceback (most recent call last):
    sgpa.core.errors.InputError: fit: the data set cannot be read (list index out of range)
    """
    try:
        yield
    except (SgpaError, torch.OutOfMemoryError):
        raise
    except ERRORS as error:
        raise InputError(f"{what} ({first_line(error)})") from error
