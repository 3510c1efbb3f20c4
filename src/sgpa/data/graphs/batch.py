"""Graphs as one padded batch.

The model makes tokens of a batch: one a node, one a directed edge. The node identifiers of `identifiers.py`
show which edge touches which node.
"""

from collections.abc import Sequence

from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from sgpa.core.errors import InputError, check_fields
from sgpa.core.inputs import Graphs
from sgpa.data.dataset import Dataset
from sgpa.data.graphs.graph import Graph
from sgpa.data.graphs.identifiers import IDENTIFIERS


def pack(graphs: Sequence[Graph], identifiers: Sequence[Tensor]) -> Graphs:
    """Graphs and their identifiers [n, P] as one padded batch: [B, max n] nodes, [B, max m] edges."""
    if not graphs or len(graphs) != len(identifiers):
        raise InputError(
            f"{len(graphs)} graphs and {len(identifiers)} sets of identifiers cannot be packed into a batch"
        )
    for i, (graph, P) in enumerate(zip(graphs, identifiers, strict=True)):
        if P.shape != (len(graph), identifiers[0].shape[-1]):
            raise InputError(f"graph {i} of {len(graph)} nodes has identifiers of shape {list(P.shape)}")
    nodes, edges, types = (
        pad_sequence([getattr(graph, part).long() for graph in graphs], batch_first=True, padding_value=-1)
        for part in ("nodes", "edges", "edge_types")
    )  # [B, max n], [B, max m, 2], [B, max m]
    return Graphs(nodes, edges, types, pad_sequence(list(identifiers), batch_first=True))


def identified(graphs: Sequence[Graph], identifiers: str = "laplacian", width: int = 16) -> Graphs:
    """Graphs as one batch with identifiers, the input of a model.

    Args:
        graphs: One or more graphs.
        identifiers: Kind of identifiers: "laplacian", "orthogonal" or "walks".
        width: Columns of the identifiers.

    Returns:
        A padded batch with `identifiers` [B, max n, width].

    Example:
        >>> import torch
        >>> pair = Graph(torch.tensor([0, 1]), torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 0]))
        >>> identified([pair], width=4).identifiers.shape
        torch.Size([1, 2, 4])
    """
    known = ("identifiers", identifiers, identifiers in IDENTIFIERS, ", ".join(IDENTIFIERS))
    check_fields("graphs", [known, ("width", width, width >= 1, "1 or more")])
    return pack(graphs, IDENTIFIERS[identifiers][0](graphs, width))


def dataset(
    graphs: Sequence[Graph],
    targets: Tensor,
    identifiers: str = "laplacian",
    width: int = 16,
    augment: bool = False,
) -> Dataset:
    """Graphs with targets [N], batched by length; `augment` varies the identifiers of shuffled batches."""
    inputs = identified(graphs, identifiers, width)
    lengths = (inputs.nodes >= 0).sum(1) + (inputs.edge_types >= 0).sum(1)  # [N]
    return Dataset(inputs, targets, IDENTIFIERS[identifiers][1] if augment else None, lengths)


def max_tokens(graphs: Sequence[Graph]) -> int:
    """Tokens of the longest graph or complement: n + m, or n + n (n - 1) - m."""
    return max(max(len(g) + len(g.edges), len(g) ** 2 - len(g.edges)) for g in graphs)
