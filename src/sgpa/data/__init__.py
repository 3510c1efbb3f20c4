"""Data sets and the shifts they are tested under."""

from sgpa.data.dataset import Dataset, Splits

__all__ = ["Dataset", "Splits"]
