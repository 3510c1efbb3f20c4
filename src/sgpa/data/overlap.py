"""Test rows that occur among the training rows: their answers say little about new inputs."""

from sgpa.core.inputs import row_bytes
from sgpa.data.dataset import Dataset


def shared_rows(train: Dataset, test: Dataset) -> int:
    """How many test rows have the inputs of some training row, bit for bit; padding does not count.

    >>> import torch
    >>> x = torch.tensor([[1, 2, 0], [3, 4, 5]])
    >>> shared_rows(Dataset(x, torch.zeros(2)), Dataset(torch.tensor([[1, 2], [3, 4]]), torch.zeros(2)))
    1
    """
    seen = set(row_bytes(train.inputs))
    return sum(row in seen for row in row_bytes(test.inputs))
