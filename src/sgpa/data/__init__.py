"""Data sets as tensors, and the shifts that models are tested under."""

from sgpa.data.dataset import Dataset, Splits

__all__ = ["Dataset", "Splits"]
