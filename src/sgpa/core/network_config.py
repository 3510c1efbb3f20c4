"""What files of Hugging Face networks may ask for; checked before torch is imported."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sgpa.core.errors import InputError

MOST_LAYERS = 10_000
MOST_TOKENS = 10_000_000
TOKENIZERS = ("tokenizer.json", "vocab.json", "added_tokens.json")


def check_layers(config: Mapping[str, Any], source: object) -> None:
    """Raise for a config with an absurd number of layers, which the package would try to build.

    >>> check_layers({"num_hidden_layers": 2**31}, "my-model")
    Traceback (most recent call last):
    sgpa.core.errors.InputError: my-model: num_hidden_layers=2147483648 (allowed: 10000 at most)
    """
    for name, value in config.items():
        if isinstance(value, dict):
            check_layers(value, source)
        elif "layer" in name and isinstance(value, int | float) and value > MOST_LAYERS:
            raise InputError(f"{source}: {name}={value} (allowed: {MOST_LAYERS} at most)")


def check_tokenizer(file: Path) -> None:
    """Raise for a tokenizer.json, or a vocab.json, with absurd numbers: its library allocates so much memory.

    A file that is missing or cannot be read is left to the library, whose error says more.
    """
    try:
        saved = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return
    if not isinstance(saved, dict):
        return
    model = saved.get("model")
    parts = saved if model is None else [saved.get("added_tokens"), saved.get("padding"), model]
    largest = max(_whole_numbers(parts), default=0)
    if largest > MOST_TOKENS:
        raise InputError(f"{file}: the number {largest} of a token (allowed: {MOST_TOKENS} at most)")


def _whole_numbers(value: Any) -> Iterator[int]:
    """All whole numbers in plain data."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _whole_numbers(part)
    elif isinstance(value, int):
        yield value
