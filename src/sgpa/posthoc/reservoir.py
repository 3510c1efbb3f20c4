"""A uniform random part of a stream of rows, of bounded size, drawn with a fixed seed."""

from collections.abc import Sequence

import torch
from torch import Tensor


class Reservoir:
    """Keeps at most `size` rows of several columns, every row of the stream with the same probability.

    Example:
        >>> reservoir = Reservoir(3)
        >>> for start in range(0, 100, 10):
        ...     reservoir.add([torch.arange(start, start + 10)])
        >>> len(reservoir), reservoir.columns()[0].shape
        (3, torch.Size([3]))
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._generator = torch.Generator().manual_seed(0)
        self._keys = torch.empty(0)
        self._columns: list[Tensor] = []

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def full(self) -> bool:
        """Whether further rows replace others."""
        return len(self) >= self.size

    def add(self, columns: Sequence[Tensor]) -> None:
        """Offer rows: tensors of equal length, one for each column."""
        keys = torch.rand(len(columns[0]), generator=self._generator)  # the largest keys stay
        enter = keys > self._keys.min() if self.full else torch.ones_like(keys, dtype=torch.bool)
        new = [x[enter.to(x.device)].detach().cpu() for x in columns]
        keys = torch.cat([self._keys, keys[enter]])
        joined = [torch.cat(pair) for pair in zip(self._columns, new, strict=True)] if self._columns else new
        stay = keys.topk(min(self.size, len(keys))).indices
        self._keys, self._columns = keys[stay], [x[stay] for x in joined]

    def columns(self) -> list[Tensor]:
        """The rows that were kept, one tensor for each column."""
        return self._columns
