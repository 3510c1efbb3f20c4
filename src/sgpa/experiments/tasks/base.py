"""A task: data to train on, data to test on, and what a model needs to read them."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from sgpa.core.errors import Check, InputError
from sgpa.core.inputs import Inputs
from sgpa.core.noise import check_seed
from sgpa.data import Dataset, Splits, split
from sgpa.data.corruptions.on_disk import CorruptedFiles
from sgpa.evaluation.results import OodSet
from sgpa.experiments.tasks.display import Display
from sgpa.inference.readers import Reader
from sgpa.models.config.embedding import EmbeddingConfig
from sgpa.training.defaults import MIN_ROWS
from sgpa.training.fit_targets import check_classes

TEST_SHARE = 0.15  # of a user's rows are never trained on
SPLITS = {
    "random": 0.1,
    "stratified": 0.15,
}  # how a user's rows are split, and the share held out of the rest
OOD_ROWS = 200  # made inputs that are like none of a user's


@dataclass(frozen=True)
class Example:
    """An input to show in a report: as the model reads it, and as an image."""

    caption: str
    inputs: Tensor  # [1, C, h, w]
    image: list[list[float]]  # grey levels from 0 to 1


@dataclass(frozen=True)
class Task:
    """A data set that is split and ready. Shifted and out-of-distribution inputs are made when needed."""

    splits: Splits
    sizes: Mapping[str, Any] = field(default_factory=dict)  # fields of the embedding that the data decide
    embedding: EmbeddingConfig | None = None  # replaces the recipe's, where inputs are of another kind
    outputs: int | None = None  # replaces the recipe's number of outputs, where the data decide it
    class_names: tuple[str, ...] = ()  # empty for regression
    reader: Reader | None = None  # how trained models read new inputs
    shifts: Mapping[str, Callable[[], Dataset]] = field(default_factory=dict)
    ood: Mapping[str, Callable[[], OodSet]] = field(default_factory=dict)
    examples: Callable[[], list[Example]] | None = None
    # set where the test images are also tested with CIFAR-C's corruptions; returns prepared files, if any
    corrupted: Callable[[], CorruptedFiles | None] | None = None
    display: Display | None = None  # how a report shows a test row; None where rows are not judged one by one
    note: str = ""  # shown in every report about this task
    content: str = ""  # digest of rows that the sums of the fingerprint do not cover

    @property
    def fingerprint(self) -> str:
        """A digest of the data that does not depend on how they are split."""
        parts = (self.splits.train, self.splits.validation, self.splits.test)
        targets = sum(float(part.targets.double().sum()) for part in parts)
        pixels = sum(_pixels(part.inputs) for part in parts)
        facts: list[Any] = [sum(len(part) for part in parts), round(targets, 3), round(pixels, 1)]
        facts += [self.content] if self.content else []
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


class TaskConfig(Protocol):
    """Which data, as frozen plain data."""

    @property
    def dataset(self) -> str:
        """Name of the data set in tables."""

    @property
    def augmentation(self) -> str:
        """Name of the augmentation in tables; empty where the data set has no choice of it."""

    def __hash__(self) -> int: ...

    def load(self, seed: int, data_dir: Path | None = None) -> Task:
        """Find, read and split the data for a run."""


def check_split(split: str) -> Check:
    """For `check_fields`: the name of a split of a user's rows."""
    return "split", split, split in SPLITS, ", ".join(SPLITS)


def split_user_rows(data: Dataset, seed: int, kind: str = "random") -> tuple[Splits, Tensor, Tensor]:
    """Rows for training, validation and test, the indices of all rows to learn from and of those to test on.

    The test rows are drawn first, then the validation rows among the others, each from `seed`. In a
    "stratified" split every class has its share of both.
    """
    rest, test = split_test(data.targets, seed, kind)
    others = data[rest]
    held_out = max(1, round(SPLITS[kind] * len(others)))
    train, validation = split.split_rows(others.targets, held_out, seed, stratified=kind == "stratified")
    check_classes(others.targets[train])
    return Splits(others[train], others[validation], data[test]), rest, test


def split_test(targets: Tensor, seed: int, kind: str = "random") -> tuple[Tensor, Tensor]:
    """Indices of rows to learn from and of rows to test on."""
    check_seed(seed)
    rows = len(targets)
    if rows < MIN_ROWS:
        raise InputError(f"{rows} rows are too few to train and test on; at least {MIN_ROWS} are needed")
    held_out = round(TEST_SHARE * rows)
    return split.split_rows(targets, held_out, seed, stratified=kind == "stratified")


def split_note(splits: Splits, kind: str = "random") -> str:
    """How a user's rows were split, for the report."""
    learned = len(splits.train) + len(splits.validation)
    return (
        f"Trained on {learned} rows ({SPLITS[kind]:.0%} held out to pick the epoch), tested on "
        f"{len(splits.test)} rows that were never trained on."
    )


def _pixels(inputs: Inputs) -> float:
    """The sum of all pixels; 0 for other inputs, whose numbering may depend on the split."""
    return float(inputs.double().sum()) if isinstance(inputs, Tensor) and inputs.ndim == 4 else 0.0
