"""Functions as plain data, to see whether a run is resumed with the function that it began with."""

import hashlib
from collections.abc import Callable, Iterable
from functools import partial
from types import CodeType
from typing import Any


def function_as_data(function: Callable[..., Any]) -> dict[str, Any]:
    """Name, code, and the numbers and words that a function was made with.

    A function whose lines have moved is the same. What it calls, and arrays that it holds, are not compared.

    >>> scale = lambda x, by=2: x * by
    >>> function_as_data(scale) == function_as_data(lambda x, by=3: x * by)
    False
    """
    if isinstance(function, partial):
        given = [*function.args, *(part for item in sorted(function.keywords.items()) for part in item)]
        return {"of": function_as_data(function.func), "with": _plain(given)}
    code = getattr(function, "__code__", None)
    if code is None:  # an object that can be called
        kind = type(function)
        made_of = _plain(getattr(function, "__dict__", {}).values())
        return {"kind": f"{kind.__module__}.{kind.__qualname__}", "with": made_of}
    held = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    values = [*(getattr(function, "__defaults__", None) or ()), *held]
    return {"function": function.__qualname__, "code": _digest(code), "with": _plain(values)}


def _plain(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, int | float | str)]


def _digest(code: CodeType) -> str:
    constants = [_digest(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    text = f"{code.co_code.hex()} {code.co_names} {constants}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
