"""What can be said about a model folder and its data before torch is imported."""

import json
from difflib import get_close_matches
from pathlib import Path

from sgpa.core.errors import InputError, one_line
from sgpa.core.network_config import TOKENIZERS, check_layers, check_tokenizer

TEXT, IMAGE = "text", "image"
HEADS = {"ForSequenceClassification": TEXT, "ForImageClassification": IMAGE}
FOLDER = "a folder that save_pretrained wrote"
BESIDE = {  # what makes inputs, and the files that it is saved in
    TEXT: ("tokenizer", ("tokenizer.json", "tokenizer_config.json", "vocab.*", "*.model")),
    IMAGE: ("image processor", ("preprocessor_config.json", "processor_config.json")),
}


def read_kind(folder: Path) -> str:
    """Whether a model folder holds a classifier of texts or of images."""
    if not folder.is_dir():
        raise InputError(f"{one_line(folder)} is not a folder; name {FOLDER}")
    file = folder / "config.json"
    if not file.is_file():
        raise InputError(f"{folder} has no config.json; name {FOLDER}")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        names = [str(name) for name in config.get("architectures") or []]
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        raise InputError(f"{file} is not the config of a model; name {FOLDER}") from None
    check_layers(config, file)
    for name in TOKENIZERS:
        check_tokenizer(folder / name)
    for name in names:
        for ending, kind in HEADS.items():
            if ending in name:  # DeiT's and LeViT's names go on with WithTeacher
                _check_beside(folder, kind)
                return kind
    raise InputError(
        f"{folder} has no classification head: architectures are {', '.join(names) or 'not named'} "
        f"(allowed: {', '.join('...' + ending for ending in HEADS)})"
    )


def _check_beside(folder: Path, kind: str) -> None:
    """Raise unless the tokenizer or image processor lies beside the model."""
    what, patterns = BESIDE[kind]
    if not any(any(folder.glob(pattern)) for pattern in patterns):
        raise InputError(f"{folder} has no {what}; save it there with its save_pretrained")


def check_data(kind: str, data: Path) -> None:
    """Raise unless data are of the kind that a model reads: a file of texts, or a folder of images."""
    if not data.exists():
        raise InputError(f"{one_line(data)} does not exist; check the path")
    if kind == TEXT and not data.is_file():
        raise InputError(
            f"{data} is a folder, but the model reads texts; name a CSV, TSV or Parquet file with a text and "
            "a label column"
        )
    if kind == IMAGE and not data.is_dir():
        raise InputError(
            f"{data} is a file, but the model reads images; name a folder with one sub-folder of images per "
            "class"
        )


def match_classes(labels: list[str], known: tuple[str, ...]) -> list[int]:
    """The model's class of every label: by name, or else by number.

    Upper and lower case, spaces and underscores make no difference.

    >>> match_classes(["neg", "pos"], ("POS", "NEG")), match_classes(["0", "1"], ("neg", "pos"))
    ([1, 0], [0, 1])
    """
    names = {_plain(name): i for i, name in enumerate(known)}
    if all(_plain(label) in names for label in labels):
        return [names[_plain(label)] for label in labels]
    numbers = {str(i): i for i in range(len(known))}
    if all(label in numbers for label in labels):
        return [numbers[label] for label in labels]
    unknown = next(label for label in labels if _plain(label) not in names)
    close = get_close_matches(unknown, known, 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    shown = ", ".join(known[:8]) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
    raise InputError(
        f"label {unknown!r} is not a class of the model (allowed: {shown}, or their numbers 0 to "
        f"{len(known) - 1}){hint}"
    )


def _plain(name: str) -> str:
    return name.strip().replace("_", " ").casefold()
