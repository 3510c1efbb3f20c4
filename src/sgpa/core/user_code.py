"""Errors of code that is not part of this package, such as a user's model or data set."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sgpa.core.errors import InputError, SgpaError, first_line

PASSED_ON = (SgpaError, torch.OutOfMemoryError, MemoryError, OSError)


@contextmanager
def errors_of(what: str) -> Iterator[None]:
    """A block whose errors become one line that begins with `what`; the error itself stays as the cause.

    Memory that runs out, and errors of the system, are passed on as they are. All others are caught: such
    code raises what it likes, such as the plain `Exception` of the package tokenizers.

    >>> with errors_of("fit: the data set cannot be read"):
    ...     [][0]
    Traceback (most recent call last):
    sgpa.core.errors.InputError: fit: the data set cannot be read (list index out of range)
    """
    try:
        yield
    except PASSED_ON:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not panicked(error):
            raise
        raise InputError(f"{what} ({first_line(error)})") from error


def panicked(error: BaseException) -> bool:
    """Whether a library in Rust, such as tokenizers, stopped at a mistake of its own; no class to name."""
    return type(error).__name__ == "PanicException"
