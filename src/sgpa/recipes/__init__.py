"""Experiments as frozen data."""

from sgpa.recipes.schema import Recipe

__all__ = ["Recipe"]
