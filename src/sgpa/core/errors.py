"""Exceptions of the package. A message is one line: the argument, its value, what is allowed."""

import errno
from collections.abc import Iterable
from difflib import get_close_matches


class SgpaError(Exception):
    """Base class of all exceptions of this package."""


class InputError(SgpaError, ValueError):
    """An input tensor or file has the wrong shape, type or content."""


class ConfigError(SgpaError, ValueError):
    """A setting is outside its allowed range."""


class NumericalError(SgpaError, ArithmeticError):
    """A matrix cannot be factorised or a value stopped being finite."""


class CheckpointError(SgpaError):
    """A saved model or run cannot be read back."""


Check = tuple[str, object, bool, str]  # field, its value, whether it is valid, what is allowed


def check_fields(owner: str, checks: Iterable[Check]) -> None:
    """Raise one `ConfigError` that lists every field that is out of range."""
    bad = [f"{name}={value!r} (allowed: {allowed})" for name, value, ok, allowed in checks if not ok]
    if bad:
        raise ConfigError(f"{owner}: " + "; ".join(bad))


def nearest(word: str, known: Iterable[str]) -> str:
    """A suggestion for the end of an error message: similar words, or all known ones."""
    names = list(known)
    close = get_close_matches(word, names, 3, 0.5)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f" (known: {', '.join(names)})" if names else ""


FULL = (errno.ENOSPC, errno.EDQUOT)


def disk_full(error: BaseException | None) -> bool:
    """Whether an error, or one that it came from, is that of a full disk or quota."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


ADVICE = "Set TORCH"  # first words of the debugging advice of torch.compile


def first_line(error: Exception) -> str:
    """The first line of an error message, or its type; joined with the last line after a colon."""
    stripped = (line.strip() for line in str(error).splitlines())
    lines = [line for line in stripped if line and not line.startswith(ADVICE)] or [type(error).__name__]
    return f"{lines[0]} {lines[-1]}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]
