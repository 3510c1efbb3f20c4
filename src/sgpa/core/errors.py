"""Exceptions of the package. A message is one line: the argument, its value, what is allowed."""

import errno
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any


class SgpaError(Exception):
    """Base class of all exceptions of this package; the message is one line, whatever is quoted in it.

    Example:
        >>> try:
        ...     sgpa.load("no/such/folder")
        ... except sgpa.SgpaError as error:
        ...     print(str(error).count(chr(10)))
        0
    """

    def __str__(self) -> str:
        return one_line(re.sub(r"\s*\n\s*", " ", super().__str__()))


class InputError(SgpaError, ValueError):
    """An input tensor or file has the wrong shape, type or content.

    Example:
        >>> sgpa.fit(images, labels[:-1])  # doctest: +SKIP
    """


class ConfigError(SgpaError, ValueError):
    """A setting is outside its allowed range.

    Example:
        >>> sgpa.KlWeights(anneal=2.0)
        Traceback (most recent call last):
        sgpa.core.errors.ConfigError: kl: anneal=2.0 (allowed: 0 to 1)
    """


class ArgumentError(InputError, ConfigError, TypeError):
    """An argument or a setting has the wrong type, is missing or is unknown."""


class NumericalError(SgpaError, ArithmeticError):
    """A matrix cannot be factorised or a value stopped being finite.

    Example:
        >>> try:
        ...     sgpa.fit(images, labels, lr=1e9)
        ... except sgpa.NumericalError as error:
        ...     print(error)  # doctest: +SKIP
    """


class CheckpointError(SgpaError):
    """A saved model or run cannot be read back.

    Example:
        >>> sgpa.load("no/model")
        Traceback (most recent call last):
        sgpa.core.errors.CheckpointError: no/model is not a folder; name the folder of a model or of a run
    """


LONGEST = 80  # characters of a value in a message


def shown(value: Any) -> str:
    """A value in an error message: one short line; arrays and tensors by type and shape."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        layout = str(getattr(value, "layout", "torch.strided")).removeprefix("torch.").removesuffix("strided")
        kind = f"{layout or ('meta' if getattr(value, 'is_meta', False) else '')} {type(value).__name__}"
        return f"{kind.strip()} {list(value.shape)} of {value.dtype}"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # of a class that is not ours
        text = f"a {type(value).__name__}"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


Check = tuple[str, object, bool, str]  # field, its value, whether it is valid, what is allowed


def one_line(text: object) -> str:
    """A text, such as a file name, without line breaks, control characters and bytes that are not UTF-8."""
    return "".join(c if c.isprintable() else _escaped(c) for c in str(text))


def _escaped(character: str) -> str:
    """The escape sequence of a character, or of a byte that is not UTF-8."""
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def check_fields(owner: str, checks: Iterable[Check]) -> None:
    """Raise one `ConfigError` that lists every field that is out of range."""
    bad = [f"{name}={shown(value)} (allowed: {allowed})" for name, value, ok, allowed in checks if not ok]
    if bad:
        raise ConfigError(f"{owner}: " + "; ".join(bad))


MOST_LISTED = 3


def first_of(problems: Sequence[str], what: str) -> str:
    """The first of several problems in one line, and the number of the others.

    >>> first_of(["a is bad", "b is bad", "c is bad", "d is bad", "e is bad"], "files")
    'a is bad; b is bad; c is bad; and 2 more files'
    """
    more = f"; and {len(problems) - MOST_LISTED} more {what}" if len(problems) > MOST_LISTED else ""
    return "; ".join(problems[:MOST_LISTED]) + more


def nearest(word: str, known: Iterable[str]) -> str:
    """A suggestion for the end of an error message: similar words, or all known ones."""
    names = list(known)
    close = get_close_matches(word, names, 3, 0.5)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f" (known: {', '.join(names)})" if names else ""


LESS = "use fewer samples, smaller batches or smaller inputs"
FULL = (errno.ENOSPC, errno.EDQUOT)


def disk_full(error: BaseException | None) -> bool:
    """Whether an error, or one that it came from, is that of a full disk or quota."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


def out_of_memory(error: BaseException) -> str | None:
    """One line about memory that NumPy, torch or CUDA could not allocate; None for other errors.

    >>> out_of_memory(RuntimeError("can't allocate memory: you tried to allocate 80 bytes. Error code 12"))
    'not enough memory for 80 bytes; use fewer samples, smaller batches or smaller inputs'
    """
    text = str(error)
    if not isinstance(error, MemoryError) and not re.search("allocate memory|out of memory", text):
        return None
    asked = re.search(r"allocate ([\d.]+ \w+)", text)
    return f"not enough memory{f' for {asked[1]}' if asked else ''}; {LESS}"


class LostWorker(SgpaError):
    """The process of a job died."""


def is_temporary(error: BaseException | None) -> bool:
    """Whether the cause is outside: a disk, a folder or a process. The same work may succeed later."""
    while error is not None:
        if isinstance(error, OSError | LostWorker):
            return True
        error = error.__cause__ or error.__context__
    return False


ADVICE = "Set TORCH"  # first words of the debugging advice of torch.compile


def first_line(error: BaseException) -> str:
    """The first line of an error message, or its type; joined with the last line after a colon."""
    stripped = (line.strip() for line in str(error).splitlines())
    lines = [line for line in stripped if line and not line.startswith(ADVICE)] or [type(error).__name__]
    return f"{lines[0]} {lines[-1]}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]
