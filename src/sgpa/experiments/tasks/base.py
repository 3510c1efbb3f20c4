"""A task: data to learn from, data to be tested on, and what a model must know to read it."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from torch import Tensor

from sgpa.core.inputs import Inputs
from sgpa.data import Dataset, Splits
from sgpa.data.corruptions.on_disk import CorruptedFiles
from sgpa.evaluation.evaluate import Outside
from sgpa.inference.readers import Reader
from sgpa.models.config.embedding import EmbeddingConfig


@dataclass(frozen=True)
class Example:
    """An input to show on a page, as the model reads it and as people see it."""

    caption: str
    inputs: Tensor  # [1, C, h, w]
    image: list[list[float]]  # grey levels from 0 to 1


@dataclass(frozen=True)
class Task:
    """A data set made ready. Shifted and foreign inputs are made when their turn comes: they can be large."""

    splits: Splits
    sizes: Mapping[str, int] = field(default_factory=dict)  # fields of the embedding that the data decides
    embedding: EmbeddingConfig | None = None  # in place of the recipe's, where inputs are of another kind
    class_names: tuple[str, ...] = ()  # empty where numbers are predicted
    reader: Reader | None = None  # how its models read new inputs
    shifts: Mapping[str, Callable[[], Dataset]] = field(default_factory=dict)
    outside: Mapping[str, Callable[[], Outside]] = field(default_factory=dict)
    examples: Callable[[], list[Example]] | None = None
    # where the test images are also to be corrupted in all of CIFAR-C's ways: what is ready-made of that
    corrupted: Callable[[], CorruptedFiles | None] | None = None
    note: str = ""  # to be shown wherever a number of this task is shown

    @property
    def fingerprint(self) -> str:
        """Names the data, whichever way it was split."""
        parts = (self.splits.train, self.splits.validation, self.splits.test)
        targets = sum(float(part.targets.double().sum()) for part in parts)
        pixels = sum(_pixels(part.inputs) for part in parts)
        facts = [sum(len(part) for part in parts), round(targets, 3), round(pixels, 1)]
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


class TaskConfig(Protocol):
    """Which data, as frozen data itself."""

    @property
    def dataset(self) -> str:
        """Its name in tables."""

    @property
    def augmentation(self) -> str:
        """How training inputs are varied, in the words of the tables; empty where that is not a question."""

    def __hash__(self) -> int: ...

    def load(self, seed: int, data_dir: Path | None = None) -> Task:
        """Find, read and split the data for a run."""


def _pixels(inputs: Inputs) -> float:
    """The sum of all pixels; 0 for what is not images, whose numbering may depend on the split."""
    return float(inputs.double().sum()) if isinstance(inputs, Tensor) and inputs.ndim == 4 else 0.0
