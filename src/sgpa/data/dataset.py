"""A data set that fits in memory: inputs and targets, row by row."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from sgpa.errors import InputError
from sgpa.types import Batch, Inputs


@dataclass(frozen=True)
class Dataset:
    """Rows of inputs with their targets [N]."""

    inputs: Inputs
    targets: Tensor

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise InputError(f"{len(self.inputs)} inputs but {len(self.targets)} targets")
        if len(self.targets) == 0:
            raise InputError("the data set is empty")

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, rows: Tensor | slice) -> "Dataset":
        return Dataset(self.inputs[rows], self.targets[rows])

    def to(self, device: torch.device | str) -> "Dataset":
        """The same data on another device."""
        return Dataset(self.inputs.to(device), self.targets.to(device))

    def batches(self, batch_size: int, seed: int | None = None) -> Iterator[Batch]:
        """All rows once, in batches; shuffled by `seed`, in order without one."""
        order = torch.arange(len(self))
        if seed is not None:
            order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        for rows in order.to(self.targets.device).split(batch_size):
            yield Batch(self.inputs[rows], self.targets[rows])


@dataclass(frozen=True)
class Splits:
    """One task's data."""

    train: Dataset
    validation: Dataset
    test: Dataset
