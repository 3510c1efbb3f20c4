"""What a model reads: image tensors, token ids, graphs, sentences, sequences of features. All are frozen."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sgpa.core.arguments import checked
from sgpa.core.errors import ArgumentError, InputError, shown
from sgpa.core.user_code import errors_of


def _check(owner: str, **parts: tuple[object, str, type]) -> None:
    """Raise unless each part is a tensor of integers or floats with as many dimensions as its letters."""
    for name, (value, letters, kind) in parts.items():
        tensor = isinstance(value, Tensor) and value.layout == torch.strided and value.ndim == len(letters)
        right = tensor and (value.is_floating_point() if kind is float else not _inexact(value))  # type: ignore[attr-defined, arg-type]
        if not right:
            words = "floating-point" if kind is float else "integer"
            raise ArgumentError(
                f"{owner}: {name}={shown(value)} (allowed: {words} Tensor [{', '.join(letters)}])"
            )


def _inexact(x: Tensor) -> bool:
    return x.is_floating_point() or x.is_complex() or x.dtype == torch.bool


@dataclass(frozen=True)
class Graphs:
    """A padded batch of graphs. Padding nodes and edges have type -1.

    Args:
        nodes: node types, [B, N] int.
        edges: the two nodes of each edge, both directions listed, [B, M, 2] int.
        edge_types: [B, M] int.
        identifiers: orthonormal node identifiers, [B, N, P] float.

    Example:
        >>> nodes, edges = torch.tensor([[5, 2]]), torch.tensor([[[0, 1], [1, 0]]])
        >>> len(Graphs(nodes, edges, torch.zeros(1, 2, dtype=torch.long), torch.eye(2).unsqueeze(0)))
        1
    """

    nodes: Tensor  # node types                            [B, N] int
    edges: Tensor  # end points, both directions listed    [B, M, 2] int
    edge_types: Tensor  # edge types                       [B, M] int
    identifiers: Tensor  # orthonormal node identifiers    [B, N, P] float

    def __post_init__(self) -> None:
        _check("Graphs", nodes=(self.nodes, "BN", int), edges=(self.edges, "BM2", int))
        _check(
            "Graphs", edge_types=(self.edge_types, "BM", int), identifiers=(self.identifiers, "BNP", float)
        )
        (B, N), M = self.nodes.shape, self.edges.shape[1]
        fine = self.edges.shape == (B, M, 2) and self.edge_types.shape == (B, M)
        if not fine or self.identifiers.shape[:2] != (B, N):
            sizes = ", ".join(
                f"{name} {list(getattr(self, name).shape)}" for name in self.__dataclass_fields__
            )
            raise InputError(f"Graphs: {sizes} (allowed: [B, N], [B, M, 2], [B, M], [B, N, P])")

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def tokens(self) -> int:
        """Nodes and edges of a padded row."""
        return self.nodes.shape[1] + self.edges.shape[1]

    def __getitem__(self, rows: Tensor | slice) -> "Graphs":
        return Graphs(self.nodes[rows], self.edges[rows], self.edge_types[rows], self.identifiers[rows])

    @property
    def undirected(self) -> bool:
        """Whether every edge is listed in both directions, with one type, and none joins a node to itself."""
        (u, v), types, n = self.edges.unbind(-1), self.edge_types, self.nodes.shape[1]
        if not types.numel():
            return True
        real, kinds = types >= 0, int(types.max()) + 2
        up, down = (
            ((low * n + high) * kinds + types).masked_fill(~(real & (u < v if low is u else u > v)), -1)
            for low, high in ((u, v), (v, u))
        )  # a number an edge, [B, M]
        same = bool((up.sort(1).values == down.sort(1).values).all())
        return same and not bool((real & (u == v)).any())

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

    def __post_init__(self) -> None:
        _check("Words", ids=(self.ids, "BT", int), layers=(self.layers, "BTLF", float))
        if self.layers.shape[:2] != self.ids.shape:
            sizes = f"ids {list(self.ids.shape)}, layers {list(self.layers.shape)}"
            raise InputError(f"Words: {sizes} (allowed: [B, T], [B, T, L, F])")

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


@checked
@dataclass(frozen=True)
class Features:
    """A padded batch of sequences of features, such as the hidden states of a frozen network.

    Args:
        values: [B, T, F], any float type; what stands at padding is ignored.
        padding: [B, T] bool, True at padding, as `key_padding_mask` of `nn.MultiheadAttention`.

    Example:
        >>> rows = Features.of(torch.randn(2, 5, 8), lengths=[5, 3])
        >>> rows.padding.sum(1).tolist()
        [0, 2]
    """

    values: Tensor
    padding: Tensor

    def __post_init__(self) -> None:
        values, padding = self.values, self.padding
        if values.ndim != 3 or not values.is_floating_point():
            raise InputError(f"features: {values.dtype} {list(values.shape)} (allowed: floats [N, T, F])")
        if padding.shape != values.shape[:2] or padding.dtype != torch.bool:
            raise InputError(
                f"features: padding={padding.dtype} {list(padding.shape)} "
                f"(allowed: bool {list(values.shape[:2])}, True at padding)"
            )

    @staticmethod
    @checked
    def of(values: Tensor, lengths: Any = None) -> "Features":
        """Rows whose first `lengths` [N] tokens are real; all of them where none are given.

        Args:
            values: [N, T, F], any float type.
            lengths: tensor, array or list of whole numbers.

        Returns:
            The rows with their padding.
        """
        _check("Features", values=(values, "NTF", float))
        N, T = values.shape[:2]
        if lengths is None:
            return Features(values, torch.zeros(N, T, dtype=torch.bool, device=values.device))
        with errors_of("Features: lengths are no numbers"):
            real = torch.as_tensor(lengths, device=values.device)
        if real.shape != (N,) or bool((real < 1).any()) or bool((real > T).any()):
            raise InputError(
                f"features: lengths have shape {list(real.shape)} (allowed: {N} numbers, 1 to {T})"
            )
        return Features(values, torch.arange(T, device=values.device) >= real.unsqueeze(1))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def tokens(self) -> int:
        """Tokens of a padded row."""
        return self.values.shape[1]

    def __getitem__(self, rows: Tensor | slice) -> "Features":
        return Features(self.values[rows], self.padding[rows])

    def to(self, device: torch.device | str) -> "Features":
        """The same rows on another device."""
        return Features(self.values.to(device), self.padding.to(device))


Inputs = Tensor | Graphs | Words | Features


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


def row_bytes(inputs: Inputs) -> Iterator[tuple[bytes, ...]]:
    """Every row as bytes, without padding.

    Identifiers of graphs and features of words are left out: they follow from the rest, up to rounding.
    """
    if isinstance(inputs, Tensor):
        parts = [inputs]
    elif isinstance(inputs, Graphs):
        parts = [inputs.nodes, inputs.edges, inputs.edge_types]
    elif isinstance(inputs, Features):
        parts = [inputs.values]
    else:
        parts = [inputs.ids]
    # NumPy has no bfloat16
    plain = [part.float() if part.dtype == torch.bfloat16 else part for part in parts]
    arrays = [part.detach().cpu().contiguous().numpy() for part in plain]
    for row in zip(*arrays, strict=True):
        yield tuple(
            part.tobytes() if part.ndim > 2 or part.dtype.kind == "f" else _without_padding(part.tobytes())
            for part in row
        )


def _without_padding(data: bytes) -> bytes:
    """Ids without the zeros, or the -1 of graphs, that fill them up."""
    return data.rstrip(b"\xff").rstrip(b"\0")
