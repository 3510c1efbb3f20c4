"""Readers turn new files and texts into the inputs that a model was trained on.

A reader is saved beside the model as a small `reader.json`, with a `tokenizer.json` where there is a
tokenizer. It needs nothing of the training data.
"""

from pathlib import Path
from typing import Any

from sgpa.core.config import from_plain
from sgpa.core.errors import CheckpointError, ConfigError
from sgpa.core.files import read_json
from sgpa.data.texts.tokenizer import load_tokenizer
from sgpa.inference.readers.backbones import ImageFeatureReader, TextFeatureReader
from sgpa.inference.readers.base import FILE, TOKENIZER, Reader, Rows
from sgpa.inference.readers.images import ImageReader
from sgpa.inference.readers.lenient import read, read_leniently
from sgpa.inference.readers.molecules import MoleculeReader
from sgpa.inference.readers.texts import TextReader
from sgpa.inference.readers.words import WordReader

__all__ = [
    "FILE",
    "TOKENIZER",
    "ImageFeatureReader",
    "ImageReader",
    "MoleculeReader",
    "Reader",
    "Rows",
    "TextFeatureReader",
    "TextReader",
    "WordReader",
    "load",
    "read",
    "read_leniently",
]

KINDS: dict[str, type] = {
    kind.kind: kind
    for kind in (ImageReader, TextReader, WordReader, MoleculeReader, ImageFeatureReader, TextFeatureReader)
}


def load(folder: Path) -> Reader:
    """The reader that was saved in a folder.

    Args:
        folder: A folder with a `reader.json`.

    Returns:
        The reader.

    Raises:
        CheckpointError: The file is missing or does not describe a reader.

    Example:
        >>> rows = load(Path("runs/photos")).read([Path("new.jpg")])  # doctest: +SKIP
    """
    saved = read_json(folder / FILE, dict[str, Any])
    if saved.get("kind") == TextReader.kind:
        saved["tokenizer"] = load_tokenizer(folder / TOKENIZER)
    try:
        reader: Reader = from_plain(saved, KINDS, FILE)
    except ConfigError as error:
        raise CheckpointError(
            f"{folder} does not describe a reader ({error}); finish the run again"
        ) from None
    return reader
