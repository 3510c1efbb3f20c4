"""Types of arguments, settings and saved values, checked against their annotations: one mechanism for all.

`checked` decorates what users call. `fits` and `type_in_words` serve the readers of saved files too.
"""

import inspect
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache, wraps
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeVar

from sgpa.core.errors import ArgumentError, nearest, shown

Target = TypeVar("Target", bound=Callable[..., Any])
UNIONS = (typing.Union, types.UnionType)
NAMES = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a word",
    types.NoneType: "none",
    Path: "a path",
}


def checked(target: Target) -> Target:
    """Decorator: arguments of a function, or of a class's constructor, must have the annotated types.

    Unknown, missing and wrongly typed arguments give one `ArgumentError` that lists all of them. Numbers must
    be finite, whole numbers are accepted as floats, and NumPy's numbers and lists become those of Python.

    >>> @checked
    ... def repeat(word: str, times: int = 1) -> str:
    ...     return word * times
    >>> repeat("a", times="2")
    Traceback (most recent call last):
    sgpa.core.errors.ArgumentError: repeat: times='2' (allowed: a whole number)
    """
    if isinstance(target, type):
        constructor = target.__init__  # type: ignore[misc]
        target.__init__ = _checked(constructor, target)  # type: ignore[misc]
        return target
    return typing.cast(Target, _checked(target, None))


def _checked(function: Callable[..., Any], owner: type | None) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @cache
    def hints() -> dict[str, Any]:
        """Resolved at the first call: annotations may name classes that are defined later."""
        try:
            return typing.get_type_hints(owner if is_dataclass(owner) else function)
        except NameError:
            return {}

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            given = signature.bind(*args, **options)
        except TypeError as error:
            unknown = [name for name in options if name not in signature.parameters]
            hint = nearest(unknown[0], [n for n in signature.parameters if n != "self"]) if unknown else ""
            raise ArgumentError(f"{_title(function, args)}: {error}{hint}") from None
        bad = []
        for name, value in given.arguments.items():
            kind = signature.parameters[name].kind
            if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD) or name == "self":
                continue
            wanted = hints().get(name, Any)
            given.arguments[name] = converted = convert(value, wanted)
            if not fits(converted, wanted):
                allowed = type_in_words(wanted)
                if isinstance(value, float):
                    allowed = allowed.replace("a number", "a finite number")
                bad.append(f"{name}={shown(value)} (allowed: {allowed})")
        if bad:
            raise ArgumentError(f"{_title(function, args)}: " + "; ".join(bad))
        return function(*given.args, **given.kwargs)

    return call


def _title(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    return type(args[0]).__name__ if function.__name__ in ("__init__", "forward") else function.__name__


def convert(value: Any, wanted: Any) -> Any:
    """Numbers of NumPy as those of Python, lists as tuples where the type asks for one; else the value."""
    kinds = typing.get_args(wanted) if typing.get_origin(wanted) in UNIONS else (wanted,)
    if isinstance(value, list) and (tuples := [kind for kind in kinds if typing.get_origin(kind) is tuple]):
        return tuple(convert(item, typing.get_args(tuples[0])[0]) for item in value)
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        return value.item()
    return value


def fits(value: Any, wanted: Any) -> bool:  # noqa: PLR0911
    """Whether a value has the type of an annotation; annotations that say little fit everything."""
    origin, kinds = typing.get_origin(wanted), typing.get_args(wanted)
    if typing.is_typeddict(wanted):
        return mismatch(value, wanted) is None
    if origin in UNIONS:
        named = Path in kinds and isinstance(value, str | Path)  # a file name
        return _printable(str(value)) if named else any(fits(value, kind) for kind in kinds)
    if origin is Literal:
        return any(type(value) is type(kind) and value == kind for kind in kinds)
    if origin is tuple:
        return isinstance(value, tuple) and _items_fit(value, kinds)
    if origin is Callable:
        return callable(value)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            fits(k, kinds[0]) and fits(v, kinds[1]) for k, v in value.items()
        )
    if origin is not None and isinstance(origin, type) and issubclass(origin, Iterable):
        text = isinstance(value, str | bytes) and issubclass(origin, Sequence)
        if not isinstance(value, origin) or text or getattr(value, "ndim", 1) == 0:
            return False
        items = value if isinstance(value, Collection) else ()  # what can be read once is left alone
        return all(fits(item, kinds[0]) for item in items)
    if wanted is None:
        return value is None
    if wanted in (int, float):
        number = isinstance(value, Integral if wanted is int else Real) and not isinstance(value, bool)
        return number and (wanted is int or bool(abs(value) <= sys.float_info.max))
    if not isinstance(wanted, type) or wanted in (Any, object):
        return True
    if getattr(wanted, "_is_protocol", False):
        return all(hasattr(value, name) for name in vars(wanted) if not name.startswith("_"))
    return isinstance(value, wanted) and (wanted.__name__ != "Tensor" or _dense(value))


def _printable(name: str) -> bool:
    """Whether a file can have this name, and it can be printed."""
    return "\0" not in name and name.encode("utf-8", "ignore").decode() == name


def _dense(x: Any) -> bool:
    """Whether a tensor is an ordinary array of numbers."""
    return str(x.layout) == "torch.strided" and not (x.is_nested or getattr(x, "is_quantized", False))


def mismatch(value: Any, wanted: Any, path: str = "") -> str | None:
    """Where a value that was read from JSON does not have the type of an annotation, and what is allowed.

    Entries of a `TypedDict` and items of a list are visited; entries that it does not name are ignored.

    >>> class Saved(typing.TypedDict):
    ...     seeds: list[int]
    >>> mismatch({"seeds": [1, "2"]}, Saved)
    "seeds[1]='2' (allowed: a whole number)"
    """
    if typing.is_typeddict(wanted):
        if not isinstance(value, Mapping):
            return f"{path or 'it'}={shown(value)} (allowed: a mapping)"
        if missing := sorted(wanted.__required_keys__ - value.keys()):
            return f"{path}{'.' if path else ''}{missing[0]} is missing"
        inner = (
            (f"{path}.{n}" if path else n, value[n], kind)
            for n, kind in _entries(wanted).items()
            if n in value
        )
        return next((problem for at, item, kind in inner if (problem := mismatch(item, kind, at))), None)
    if typing.get_origin(wanted) is list and isinstance(value, list):
        (kind,) = typing.get_args(wanted)
        return next(
            (problem for i, item in enumerate(value) if (problem := mismatch(item, kind, f"{path}[{i}]"))),
            None,
        )
    return None if fits(value, wanted) else f"{path}={shown(value)} (allowed: {type_in_words(wanted)})"


@cache
def _entries(wanted: Any) -> dict[str, Any]:
    """The names and types of a `TypedDict`; a file of results has thousands of them."""
    return typing.get_type_hints(wanted)


def _items_fit(value: tuple[Any, ...], kinds: tuple[Any, ...]) -> bool:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return all(fits(item, kinds[0]) for item in value)
    return len(value) == len(kinds) and all(map(fits, value, kinds))


def type_in_words(wanted: Any) -> str:  # noqa: PLR0911
    """An annotation as the end of an error message."""
    origin, kinds = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in UNIONS:
        return " or ".join(dict.fromkeys(type_in_words(kind) for kind in kinds))
    if origin is Literal:
        return " or ".join(map(str, kinds))
    if typing.is_typeddict(wanted):
        return "a mapping"
    if origin is tuple and not (len(kinds) == 2 and kinds[1] is Ellipsis):
        return f"a tuple of {len(kinds)}"
    if origin is Callable:
        return "a function"
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return "a mapping"
    if origin is not None and isinstance(origin, type) and issubclass(origin, Iterable):
        return f"a list, each item {type_in_words(kinds[0])}" if kinds and kinds[0] is not Any else "a list"
    return NAMES.get(wanted, "none" if wanted is None else getattr(wanted, "__name__", str(wanted)))
