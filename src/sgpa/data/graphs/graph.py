"""One graph: typed nodes, typed edges, and its complement."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sgpa.core.errors import InputError


@dataclass(frozen=True, eq=False)
class Graph:
    """One graph with n typed nodes and m typed directed edges; every edge is listed in both directions.

    Example:
        >>> len(Graph(torch.tensor([0, 1]), torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 0])))
        2
    """

    nodes: Tensor  # node types     [n] int
    edges: Tensor  # end points     [m, 2] int
    edge_types: Tensor  #           [m] int

    def __post_init__(self) -> None:
        n = len(self.nodes)
        if n == 0:
            raise InputError("a graph needs at least one node")
        if self.edges.shape != (len(self.edge_types), 2):
            raise InputError(f"edges are {list(self.edges.shape)}, expected [{len(self.edge_types)}, 2]")
        u, v = self.edges.T
        if len(u) and (self.edges.min() < 0 or self.edges.max() >= n or bool((u == v).any())):
            raise InputError(f"edges must connect two different nodes of 0..{n - 1}")
        if not torch.equal((u * n + v).sort().values, (v * n + u).sort().values):
            raise InputError("every edge must be listed in both directions")

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self.nodes)


def adjacency(graph: Graph) -> Tensor:
    """A [n, n], symmetric, one where two nodes are connected."""
    A = torch.zeros(len(graph), len(graph), dtype=torch.float64)
    A[graph.edges[:, 0], graph.edges[:, 1]] = 1
    return A


def complement(graph: Graph, edge_type: int = 0) -> Graph:
    """The same nodes, connected exactly where they were not: n (n - 1) - m directed edges, no self-loops."""
    edges = (1 - adjacency(graph)).fill_diagonal_(0).nonzero()
    return Graph(graph.nodes, edges, torch.full((len(edges),), edge_type))
