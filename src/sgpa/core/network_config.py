"""What a Hugging Face config may ask for; checked before torch is imported."""

from collections.abc import Mapping
from typing import Any

from sgpa.core.errors import InputError

MOST_LAYERS = 10_000


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
