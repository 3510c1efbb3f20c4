"""Recipes: experiments as frozen data."""

from sgpa.core.config import leaves, override
from sgpa.core.errors import ConfigError, nearest
from sgpa.experiments.recipes.alternatives import alternatives
from sgpa.experiments.recipes.digits import DIGITS
from sgpa.experiments.recipes.paper import PAPER
from sgpa.experiments.recipes.plan import plan, plans
from sgpa.experiments.recipes.schema import Recipe
from sgpa.training.plan import plan_of

RECIPES = {recipe.name: recipe for recipe in (*PAPER, DIGITS)}


def find(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in RECIPES:
        raise ConfigError(f"unknown recipe {name!r}{nearest(name, RECIPES)}")
    return RECIPES[name]


__all__ = [
    "DIGITS",
    "RECIPES",
    "Recipe",
    "alternatives",
    "find",
    "leaves",
    "override",
    "plan",
    "plan_of",
    "plans",
]
