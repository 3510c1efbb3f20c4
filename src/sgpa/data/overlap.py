"""Test rows that occur among the training rows: their answers say little about new inputs."""

from collections.abc import Iterator

from torch import Tensor

from sgpa.core.inputs import Features, Graphs, Inputs
from sgpa.data.dataset import Dataset


def shared_rows(train: Dataset, test: Dataset) -> int:
    """How many test rows have the inputs of some training row, bit for bit; padding does not count.

    >>> import torch
    >>> x = torch.tensor([[1, 2, 0], [3, 4, 5]])
    >>> shared_rows(Dataset(x, torch.zeros(2)), Dataset(torch.tensor([[1, 2], [3, 4]]), torch.zeros(2)))
    1
    """
    seen = set(_rows(train.inputs))
    return sum(row in seen for row in _rows(test.inputs))


def _rows(inputs: Inputs) -> Iterator[tuple[bytes, ...]]:
    """Every row as bytes; identifiers of graphs and features of words follow from the rest."""
    if isinstance(inputs, Tensor):
        parts = [inputs]
    elif isinstance(inputs, Graphs):
        parts = [inputs.nodes, inputs.edges, inputs.edge_types]
    elif isinstance(inputs, Features):
        parts = [inputs.values]
    else:
        parts = [inputs.ids]
    arrays = [part.detach().cpu().contiguous().numpy() for part in parts]
    for row in zip(*arrays, strict=True):
        yield tuple(
            part.tobytes() if part.ndim > 2 or part.dtype.kind == "f" else _without_padding(part.tobytes())
            for part in row
        )


def _without_padding(data: bytes) -> bytes:
    """Ids without the zeros, or the -1 of graphs, that fill them up."""
    return data.rstrip(b"\xff").rstrip(b"\0")
