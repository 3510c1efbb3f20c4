"""What a model reads: image tensors, token ids, graphs, sentences with features. All are frozen."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Graphs:
    """A padded batch of graphs. Padding nodes and edges have type -1."""

    nodes: Tensor  # node types                            [B, N] int
    edges: Tensor  # end points, both directions listed    [B, M, 2] int
    edge_types: Tensor  # edge types                       [B, M] int
    identifiers: Tensor  # orthonormal node identifiers    [B, N, P] float

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def tokens(self) -> int:
        """Nodes and edges of a padded row."""
        return self.nodes.shape[1] + self.edges.shape[1]

    def __getitem__(self, rows: Tensor | slice) -> "Graphs":
        return Graphs(self.nodes[rows], self.edges[rows], self.edge_types[rows], self.identifiers[rows])

    def trimmed(self, multiple: int = 1) -> "Graphs":
        """Without the columns that are padding in every graph (padding comes last).

        What is left of nodes and of edges is a multiple of so many columns, as far as there are any.
        """
        n = int((self.nodes >= 0).sum(1).max()) if len(self) else 0
        m = int((self.edge_types >= 0).sum(1).max()) if len(self) else 0
        n, m = (-(-k // multiple) * multiple for k in (n, m))
        return Graphs(self.nodes[:, :n], self.edges[:, :m], self.edge_types[:, :m], self.identifiers[:, :n])

    def to(self, device: torch.device | str) -> "Graphs":
        """The same graphs on another device."""
        return Graphs(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Words:
    """A padded batch of sentences: word ids, and what a frozen language model says of every word.

    A word is padding where its id is 0.
    """

    ids: Tensor  # word ids                                       [B, T] int
    layers: Tensor  # features of each layer, any float type      [B, T, L, F]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> int:
        """Words of a padded row."""
        return self.ids.shape[1]

    def __getitem__(self, rows: Tensor | slice) -> "Words":
        return Words(self.ids[rows], self.layers[rows])

    def to(self, device: torch.device | str) -> "Words":
        """The same sentences on another device."""
        return Words(self.ids.to(device), self.layers.to(device))


Inputs = Tensor | Graphs | Words


@dataclass(frozen=True)
class Batch:
    """Inputs and their targets, one row each."""

    inputs: Inputs
    targets: Tensor  # [B] int classes or float values

    def __len__(self) -> int:
        return len(self.targets)

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return Batch(self.inputs.to(device), self.targets.to(device))


def tensors_of(inputs: Inputs) -> list[Tensor]:
    """What inputs are made of."""
    if isinstance(inputs, Tensor):
        return [inputs]
    return [getattr(inputs, name) for name in inputs.__dataclass_fields__]


def made_of(like: Inputs, tensors: Sequence[Tensor]) -> Inputs:
    """Inputs of the kind of others, made of these tensors."""
    return tensors[0] if isinstance(like, Tensor) else type(like)(*tensors)
