"""Reading many inputs of which some cannot be read: those are set aside, each with its reason."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sgpa.core.errors import InputError
from sgpa.data.images.folder import files_below
from sgpa.data.texts.tables import TEXT_COLUMNS
from sgpa.inference.readers.base import Reader, Rows, existing
from sgpa.inference.readers.texts import column_names, read_rows

Item = dict[str, Any]  # describes an input: its file, or its file, row and text


def read_leniently(
    reader: Reader, files: Sequence[Path], texts: Sequence[str] = (), column: str | None = None
) -> Rows:
    """Inputs of files and texts; `problems` of the result has the reason for each one that cannot be read.

    A path that does not exist, a table without the column and an empty folder are errors, as with
    `reader.read`, and so are inputs of which none can be read.

    Args:
        reader: Reads one kind of input.
        files, texts, column: As for `reader.read`.

    >>> read_leniently(reader, [Path("photos")]).problems  # doctest: +SKIP
    {3: 'cannot be read as an image (no image format Pillow knows)'}
    """
    try:
        return reader.read(files, texts, column)
    except InputError as error:
        items = _items(reader, files, texts, column)
        if not items:
            raise
        problems = _problems(reader, items)
        if not problems or len(problems) == len(items):
            raise error from None
    good = [item for i, item in enumerate(items) if i not in problems]
    return replace(_read(reader, good), metadata=items, problems=problems)


def read(
    reader: Reader, files: Sequence[Path], texts: Sequence[str], column: str | None, *, strict: bool
) -> Rows:
    """Inputs of files and texts; one that cannot be read is an error with `strict`, else it is set aside."""
    return reader.read(files, texts, column) if strict else read_leniently(reader, files, texts, column)


def _by_file(reader: Reader) -> bool:
    """Whether every input is a file of its own."""
    return reader.kind.startswith("image")


def _word(reader: Reader) -> str:
    """What one input is called where it is a text."""
    return str(getattr(reader, "row", "text"))


def _items(reader: Reader, files: Sequence[Path], texts: Sequence[str], column: str | None) -> list[Item]:
    """Every single input."""
    if _by_file(reader):
        if texts or column is not None:
            return []
        paths = [
            file for path in existing(files) for file in (files_below(path) if path.is_dir() else [path])
        ]
        return [{"file": str(path)} for path in paths]
    common = getattr(reader, "columns", TEXT_COLUMNS)
    return read_rows(
        files,
        texts,
        column,
        column_names(getattr(reader, "column", None), common),
        _word(reader),
        keep_empty=True,
    )


def _read(reader: Reader, items: Sequence[Item]) -> Rows:
    if _by_file(reader):
        return reader.read([Path(item["file"]) for item in items])
    return reader.read([], [item[_word(reader)] for item in items])


def _problems(reader: Reader, items: Sequence[Item]) -> dict[int, str]:
    """The reason for each item that cannot be read, by its place."""
    problems = {}
    if not _by_file(reader):
        problems = {
            i: f"the {_word(reader)} is empty" for i, item in enumerate(items) if not item[_word(reader)]
        }
        try:
            _read(reader, [item for i, item in enumerate(items) if i not in problems])
            return problems
        except InputError:
            pass
    for i, item in enumerate(items):
        if i in problems:
            continue
        try:
            _read(reader, [item])
        except InputError as error:
            text = str(error).removeprefix(f"{item.get('file')} ").removeprefix("text, row 1: ")
            problems[i] = text.removesuffix("; replace or delete it").removesuffix(
                "; correct it or remove the row"
            )
    return problems
