"""A data set that fits in memory: inputs and targets, row by row."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sgpa.core.arguments import checked
from sgpa.core.errors import InputError
from sgpa.core.inputs import Batch, Inputs

Augment = Callable[[Inputs, torch.Generator], Inputs]  # a batch of inputs and the source of randomness
BUCKET = 50  # batches whose rows are sorted by length together


@checked
@dataclass(frozen=True)
class Dataset:
    """Rows of inputs with their targets.

    Args:
        inputs: A tensor [N, ...], `Graphs` or `Words`.
        targets: Classes [N] int64, or values [N] float.
        augment: Function of (inputs, generator) that changes the inputs of shuffled batches, on their device.
        lengths: Lengths [N] of rows that differ in length; batches then hold rows of similar length.

    Raises:
        InputError: There are no rows, or inputs and targets differ in number.

    Example:
        >>> data = Dataset(torch.rand(10, 4), torch.arange(10))
        >>> [len(batch) for batch in data.batches(4, seed=0)]
        [4, 4, 2]
    """

    inputs: Inputs
    targets: Tensor
    augment: Augment | None = None
    lengths: Tensor | None = None

    def __post_init__(self) -> None:
        if self.targets.ndim == 0 or (isinstance(self.inputs, Tensor) and self.inputs.ndim == 0):
            raise InputError("inputs or targets are one number (allowed: one row each)")
        if len(self.inputs) != len(self.targets):
            raise InputError(f"{len(self.inputs)} inputs but {len(self.targets)} targets")
        if len(self.targets) == 0:
            raise InputError("the data set is empty")

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, rows: Tensor | slice) -> "Dataset":
        lengths = None if self.lengths is None else self.lengths[rows]
        return Dataset(self.inputs[rows], self.targets[rows], self.augment, lengths)

    def to(self, device: torch.device | str) -> "Dataset":
        """The same data on another device. Lengths stay, as they only decide the order."""
        return replace(self, inputs=self.inputs.to(device), targets=self.targets.to(device))

    def batches(self, batch_size: int, seed: int | None = None) -> Iterator[Batch]:
        """All rows once, in batches.

        Args:
            batch_size: Rows of a batch; the last one may be smaller.
            seed: Shuffle and augment with this random seed. Without one, rows come in order and unchanged.

        Yields:
            Batches on the device of the data.
        """
        if seed is None:
            for i in range(0, len(self), batch_size):
                yield Batch(self.inputs[i : i + batch_size], self.targets[i : i + batch_size])
            return
        shuffle = torch.Generator().manual_seed(seed)
        device = self.targets.device
        noise = torch.Generator(device).manual_seed(seed)
        for rows in self._order(batch_size, shuffle):
            at = rows.to(device)
            inputs = self.inputs[at] if self.augment is None else self.augment(self.inputs[at], noise)
            yield Batch(inputs, self.targets[at])

    def _order(self, batch_size: int, shuffle: torch.Generator) -> list[Tensor]:
        """Shuffled row numbers of every batch.

        With lengths, the rows of `BUCKET` batches are sorted by length, then all batches are shuffled.
        """
        order = torch.randperm(len(self), generator=shuffle)
        if self.lengths is None:
            return list(order.split(batch_size))
        lengths = self.lengths.cpu()
        buckets = [rows[lengths[rows].argsort()] for rows in order.split(BUCKET * batch_size)]
        batches = [batch for rows in buckets for batch in rows.split(batch_size)]
        mixed = torch.randperm(len(batches), generator=shuffle)
        return [batches[i] for i in mixed.tolist()]


@dataclass(frozen=True)
class Splits:
    """Training, validation and test rows of one task."""

    train: Dataset
    validation: Dataset
    test: Dataset
