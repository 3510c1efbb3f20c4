"""Experiments as frozen data."""

from sgpa.errors import ConfigError, nearest
from sgpa.recipes.demo import DIGITS
from sgpa.recipes.overrides import override
from sgpa.recipes.paper import PAPER
from sgpa.recipes.plan import Plan, Training, plan, plan_of, plans
from sgpa.recipes.readings import READINGS, Reading, readings
from sgpa.recipes.schema import ATTENTIONS, Recipe
from sgpa.recipes.settings import changed, settings_of

RECIPES = {recipe.name: recipe for recipe in (*PAPER, DIGITS)}


def find(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in RECIPES:
        raise ConfigError(f"unknown recipe {name!r}{nearest(name, RECIPES)}")
    return RECIPES[name]


__all__ = [
    "ATTENTIONS",
    "DIGITS",
    "READINGS",
    "RECIPES",
    "Plan",
    "Reading",
    "Recipe",
    "Training",
    "changed",
    "find",
    "override",
    "plan",
    "plan_of",
    "plans",
    "readings",
    "settings_of",
]
