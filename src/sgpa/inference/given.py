"""Inputs that are given in Python: paths, strings, Pillow images, arrays."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from sgpa.core.errors import InputError
from sgpa.data.arrays import as_inputs
from sgpa.inference.readers import ImageFeatureReader, ImageReader, Reader, Rows, read

TABLES = (".csv", ".tsv", ".tab", ".parquet", ".txt")


def read_given(reader: Reader, inputs: Any, column: str | None = None, *, strict: bool = False) -> Rows:
    """New inputs as a model reads them.

    Args:
        reader: Of the model.
        inputs: One input or a sequence of them: paths, strings, Pillow images; or what the model itself
            reads (tensors, arrays, lists of them, `Graphs`, `Words`).
        column: The column of a table that holds the inputs.
        strict: Raise for a file or text that cannot be read, instead of setting it aside.

    Returns:
        The inputs, and a description of each.
    """
    if (strings := _strings(inputs)) is not None:
        inputs = strings
    if _is_batch(inputs) or _is_array(inputs):
        x = as_inputs(inputs)
        if isinstance(x, Tensor) and x.ndim == 0:
            raise InputError("inputs of shape [] (allowed: one row or more)")
        return Rows(x, [{"row": i} for i in range(1, len(x) + 1)])
    if isinstance(inputs, str) and _names_no_text(inputs):
        inputs = Path(inputs)
    items = [inputs] if isinstance(inputs, str | Path | Image.Image) else _items(inputs)
    if not items:
        raise InputError("nothing to predict: the inputs have no row")
    pictures = [item for item in items if isinstance(item, Image.Image)]
    if isinstance(reader, ImageReader | ImageFeatureReader):
        if pictures and len(pictures) < len(items):
            raise InputError("the inputs mix images and paths; give images, or paths")
        if pictures and isinstance(reader, ImageReader):
            return reader.read_pictures(pictures)
        if pictures:
            raise InputError("a model with a backbone reads image files; give paths")
        items = [Path(item) for item in items if not isinstance(item, Image.Image)]
    elif pictures:
        raise InputError(f"this model reads {reader.kind}, not images")
    items = [Path(item) if isinstance(item, str) and _is_file_of_rows(item) else item for item in items]
    files, texts = [i for i in items if isinstance(i, Path)], [i for i in items if isinstance(i, str)]
    return read(reader, files, texts, column, strict=strict)


def _is_file_of_rows(text: str) -> bool:
    """Whether a string is the path of a table or of a list of texts, rather than a text of its own."""
    return text.lower().endswith(TABLES) and os.path.isfile(text)


def _names_no_text(text: str) -> bool:
    """Whether a string given alone is one word with the ending of a table: a path, even of no file."""
    return text.lower().endswith(TABLES) and len(text.split()) == 1


def _strings(inputs: Any) -> list[Any] | None:
    """The entries of an array or of a column of pandas where they are strings, otherwise None."""
    if isinstance(inputs, Tensor | Sequence) or _is_batch(inputs) or not hasattr(inputs, "__array__"):
        return None
    array = np.asarray(inputs)
    strings = array.dtype.kind in "UTO" and array.ndim == 1
    return array.tolist() if strings else None


def _is_array(inputs: Any) -> bool:
    """Whether these are numbers: a tensor, an array, or a list of such rows."""
    first = inputs[0] if isinstance(inputs, list | tuple) and inputs else inputs
    numbers = isinstance(first, Tensor | int | float) or (first is not inputs and isinstance(first, list))
    return numbers or (hasattr(first, "__array__") and not isinstance(first, Image.Image | str))


def _is_batch(inputs: Any) -> bool:
    """Whether these are `Graphs`, `Words` or the like: rows of several tensors."""
    return hasattr(inputs, "__dataclass_fields__") and hasattr(inputs, "tokens")


def _items(inputs: Any) -> list[Any]:
    fine = isinstance(inputs, Sequence) and all(isinstance(i, str | Path | Image.Image) for i in inputs)
    if not fine:
        kind = type(inputs).__name__
        raise InputError(f"inputs of type {kind} (allowed: paths, strings, Pillow images, tensors, arrays)")
    return list(inputs)
