"""An extension of the API reference: examples in docstrings are shown as code, with or without a heading."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^([ ]*)>>> .*?(?=\n[ ]*\n|\Z)", flags=re.S | re.M)
HEADING = re.compile(r"^([ ]*)Examples?:\n", flags=re.M)


def fenced(text: str) -> str:
    """The docstring with every doctest in a code block.

    >>> print(fenced("Add.\\n\\n>>> 1 + 1\\n2"))
    Add.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """

    def block(match: re.Match[str]) -> str:
        indent = match.group(1)
        lines = [line.removeprefix(indent) for line in match.group(0).splitlines()]
        return "\n".join(["```pycon", *lines, "```"])

    return EXAMPLE.sub(block, HEADING.sub(r"**Example**\n\n", text))


class Doctests(griffe.Extension):
    """Put every doctest in a code block."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of a module, class, function or attribute."""
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)
