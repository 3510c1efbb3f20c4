"""Which fields of a recipe can be set, and what to set instead of those that are decided elsewhere."""

from collections.abc import Iterator, Sequence
from typing import Any

from sgpa.core.config import leaves, override
from sgpa.core.errors import ConfigError
from sgpa.experiments.recipes.schema import Recipe

DECIDED = {  # by the plan of a method: a value of one's own would be left out without a word
    "name": "choose another recipe instead",
    "model.attention": "choose the attention of the plan (--attention) instead",
    "model.weights": "the method decides it",
    "model.head": "the method decides it",
    "ts.base": "it is the recipe's maximum-likelihood model",
    "mcd.base": "it is the recipe's maximum-likelihood model",
    "kflla.base": "it is the recipe's maximum-likelihood model",
    "mfvi.attention": "choose the attention of the plan (--attention) instead",
    "sngp.attention": "choose the attention of the plan (--attention) instead",
    "sgpa.attention.kernel": "set kernel.name and kernel.preset instead",
}


def changed(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """The recipe with every `path=value` applied; a field that another one decides is refused.

    >>> from sgpa.experiments.recipes.digits import DIGITS
    >>> changed(DIGITS, ["optim.epochs=20"]).optim.epochs
    20
    """
    for setting in settings:
        path = setting.partition("=")[0].strip()
        if (owner := _decided(path)) is not None:
            raise ConfigError(f"{path} cannot be set: {DECIDED[owner]}")
    return override(recipe, settings)


def settings_of(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    """Every field that can be set, with its value."""
    return (pair for pair in leaves(recipe) if _decided(pair[0]) is None)


def _decided(path: str) -> str | None:
    return next((owner for owner in DECIDED if path == owner or path.startswith(f"{owner}.")), None)
