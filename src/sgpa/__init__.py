"""Transformers that know when they do not know: attention as a sparse Gaussian process.

The public names are listed in `__init__.pyi`, each with the module that defines it. They are imported on
first use, so that `import sgpa` and the command line start at once.
"""

from importlib import import_module
from pathlib import Path

__version__ = "0.2.0.dev0"


def _read_public_names() -> dict[str, str]:
    """Public name -> module, from lines `from MODULE import NAME as NAME` of the type stub."""
    lines = Path(__file__).with_name("__init__.pyi").read_text(encoding="utf-8").splitlines()
    words = (line.split() for line in lines if line.startswith("from "))
    return {name: module for _, module, _, name, *_ in words}


_PUBLIC = _read_public_names()
__all__ = sorted(_PUBLIC)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'sgpa' has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
