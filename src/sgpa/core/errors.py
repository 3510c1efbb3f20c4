"""What can go wrong, said in one line that tells the reader what to do next."""

from collections.abc import Iterable
from difflib import get_close_matches


class SgpaError(Exception):
    """Base of every error this package raises on purpose."""


class InputError(SgpaError, ValueError):
    """A tensor or file handed to us has the wrong shape, type or content."""


class ConfigError(SgpaError, ValueError):
    """A setting is outside its allowed range."""


class NumericalError(SgpaError, ArithmeticError):
    """A matrix cannot be factorised or a value stopped being finite."""


class CheckpointError(SgpaError):
    """A saved model or run cannot be read back."""


Check = tuple[str, object, bool, str]  # field, its value, whether it is fine, what is allowed


def check_fields(owner: str, checks: Iterable[Check]) -> None:
    """Raise one `ConfigError` that lists every field that is out of range."""
    bad = [f"{name}={value!r} (allowed: {allowed})" for name, value, ok, allowed in checks if not ok]
    if bad:
        raise ConfigError(f"{owner}: " + "; ".join(bad))


def nearest(word: str, known: Iterable[str]) -> str:
    """What may have been meant, to be put behind the complaint."""
    names = list(known)
    close = get_close_matches(word, names, 3, 0.5)
    said = " or ".join(close) if close else ""
    return f"; did you mean {said}?" if said else f" (known: {', '.join(names)})" if names else ""


ADVICE = "Set TORCH"  # how compilers end


def first_line(error: Exception) -> str:
    """What an error says first, or what it is where it says nothing; after a colon also the last."""
    said = (line.strip() for line in str(error).splitlines())
    lines = [line for line in said if line and not line.startswith(ADVICE)] or [type(error).__name__]
    return f"{lines[0]} {lines[-1]}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]
