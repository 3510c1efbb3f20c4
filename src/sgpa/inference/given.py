"""Inputs that are given in Python: paths, strings, Pillow images, arrays."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sgpa.core.errors import InputError
from sgpa.core.user_code import errors_of
from sgpa.inference.readers import ImageFeatureReader, ImageReader, Reader, Rows, read

TABLES = (".csv", ".tsv", ".tab", ".parquet", ".txt")


def read_given(reader: Reader, inputs: Any, column: str | None = None, *, strict: bool = False) -> Rows:
    """New inputs as a model reads them.

    Args:
        reader: Of the model.
        inputs: One input or a sequence of them: paths, strings, Pillow images; or what the model itself
            reads (tensors, arrays, `Graphs`, `Words`).
        column: The column of a table that holds the inputs.
        strict: Raise for a file or text that cannot be read, instead of setting it aside.

    Returns:
        The inputs, and a description of each.
    """
    if isinstance(inputs, Tensor | np.ndarray) or _is_batch(inputs):
        with errors_of("the inputs are no array of numbers"):
            x = torch.as_tensor(inputs) if isinstance(inputs, np.ndarray) else inputs
        if isinstance(x, Tensor) and x.ndim == 0:
            raise InputError("inputs of shape [] (allowed: one row or more)")
        return Rows(x, [{"row": i} for i in range(1, len(x) + 1)])
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


def _is_batch(inputs: Any) -> bool:
    """Whether these are `Graphs`, `Words` or the like: rows of several tensors."""
    return hasattr(inputs, "__dataclass_fields__") and hasattr(inputs, "tokens")


def _items(inputs: Any) -> list[Any]:
    fine = isinstance(inputs, Sequence) and all(isinstance(i, str | Path | Image.Image) for i in inputs)
    if not fine:
        kind = type(inputs).__name__
        raise InputError(f"inputs of type {kind} (allowed: paths, strings, Pillow images, tensors, arrays)")
    return list(inputs)
