"""Graphs as a padded batch: node identifiers, complements, and the ZINC regression task.

A graph becomes tokens in `models/graph.py`: one per node, one per directed edge. What tells attention
which edge touches which node are the node identifiers made here.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.nn.functional import normalize, pad
from torch.nn.utils.rnn import pad_sequence

from sgpa.data.dataset import Augment, Dataset, Splits
from sgpa.data.sources import find
from sgpa.errors import InputError, check_fields
from sgpa.types import Graphs, Inputs

BONDS = ("SINGLE", "DOUBLE", "TRIPLE")
ZINC_NOTE = (
    "ZINC: trained on a uniform 10,000 of the benchmark's pool of 220,011 molecules, not on the benchmark's "
    "own 10,000; validation and test are the benchmark's."
)
SAME_EIGENVALUE = 1e-8  # closer eigenvalues share an eigenspace: float64 gives them to about 1e-15
SAME_SIZE = 1e-6  # entries closer than this are tied, and the lowest node index decides


@dataclass(frozen=True, eq=False)
class Graph:
    """One graph with n typed nodes and m typed directed edges; every edge is listed in both directions."""

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
            raise InputError(f"edges must join two different nodes of 0..{n - 1}")
        if not torch.equal((u * n + v).sort().values, (v * n + u).sort().values):
            raise InputError("every edge must be listed in both directions")

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self.nodes)


@dataclass(frozen=True)
class Vocabulary:
    """What node and edge types mean: type i is `atoms[i]`, such as "C" or "N H1 +", or `bonds[i]`."""

    atoms: tuple[str, ...]
    bonds: tuple[str, ...] = BONDS

    def to_json(self) -> dict[str, list[str]]:
        """As `vocab.json` has it; there, bond type 0 means that there is no bond."""
        return {"atom_types": list(self.atoms), "bond_types": ["NONE", *self.bonds]}

    @staticmethod
    def read(path: Path) -> "Vocabulary":
        """The vocabulary of a `vocab.json`."""
        try:
            names = json.loads(path.read_text(encoding="utf-8"))
            bonds = tuple(bond for bond in names["bond_types"] if bond != "NONE")
            return Vocabulary(tuple(names["atom_types"]), bonds)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"{path}: no vocabulary with atom_types and bond_types ({error!r})") from None


@dataclass(frozen=True)
class GraphTask:
    """A data set of graphs and what a model must know about it: `GraphConfig(**task.sizes)`."""

    splits: Splits
    vocabulary: Vocabulary
    width: int  # of the node identifiers
    max_tokens: int
    note: str = ""  # to be shown wherever a number of this task is shown

    @property
    def sizes(self) -> dict[str, int]:
        """The fields of a `GraphConfig`."""
        return {
            "node_types": len(self.vocabulary.atoms),
            "edge_types": len(self.vocabulary.bonds),
            "identifier_width": self.width,
            "max_tokens": self.max_tokens,
        }


def pack(graphs: Sequence[Graph], identifiers: Sequence[Tensor]) -> Graphs:
    """Graphs and their identifiers [n, P] as one padded batch: [B, max n] nodes, [B, max m] edges."""
    if not graphs or len(graphs) != len(identifiers):
        raise InputError(f"{len(graphs)} graphs and {len(identifiers)} sets of identifiers make no batch")
    for i, (graph, P) in enumerate(zip(graphs, identifiers, strict=True)):
        if P.shape != (len(graph), identifiers[0].shape[-1]):
            raise InputError(f"graph {i} of {len(graph)} nodes has identifiers of shape {list(P.shape)}")
    nodes, edges, types = (
        pad_sequence([getattr(graph, part).long() for graph in graphs], batch_first=True, padding_value=-1)
        for part in ("nodes", "edges", "edge_types")
    )
    return Graphs(nodes, edges, types, pad_sequence(list(identifiers), batch_first=True))


def adjacency(graph: Graph) -> Tensor:
    """A [n, n], symmetric, one where two nodes are connected."""
    A = torch.zeros(len(graph), len(graph), dtype=torch.float64)
    A[graph.edges[:, 0], graph.edges[:, 1]] = 1
    return A


def complement(graph: Graph, edge_type: int = 0) -> Graph:
    """The same nodes, connected exactly where they were not: n (n - 1) - m directed edges, no self-loops."""
    edges = (1 - adjacency(graph)).fill_diagonal_(0).nonzero()
    return Graph(graph.nodes, edges, torch.full((len(edges),), edge_type))


def laplacian_identifiers(graph: Graph, width: int) -> Tensor:
    """The first eigenvectors of I - D^-1/2 A D^-1/2 as columns, [n, width], zeros beyond the n-th.

    Eigenvalues ascend and the trivial one is included; degrees are at least 1. Eigenvectors are free up to
    sign, and up to rotation where eigenvalues coincide. Both are settled by rule, so that every machine finds
    the same ones: the largest entry is positive, and an eigenspace with projector Pi is spanned by the
    pivoted Cholesky factor of Pi, largest diagonal entry first. Ties go to the lower node index: there, and
    only there, the identifiers depend on the order of the nodes.
    """
    return _laplacian([graph], width)[0]


def _laplacian(graphs: Sequence[Graph], width: int) -> list[Tensor]:
    """`laplacian_identifiers` of many graphs; those of one size are decomposed together."""
    found: list[Tensor] = [torch.empty(0)] * len(graphs)
    sizes = np.array([len(graph) for graph in graphs])
    for n in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == n).tolist()
        A = torch.stack([adjacency(graphs[i]) for i in rows])  # [k, n, n]
        scale = A.sum(-1).clamp_min(1).rsqrt()  # [k, n]
        L = torch.eye(n, dtype=A.dtype) - scale.unsqueeze(-1) * A * scale.unsqueeze(-2)
        values, U = torch.linalg.eigh(L)  # [k, n], [k, n, n]
        U = _settled(values.numpy(), U.numpy(), width)[..., :width]
        for i, P in zip(rows, pad(torch.from_numpy(U).float(), (0, max(0, width - n))), strict=True):
            found[i] = P
    return found


def _settled(values: np.ndarray, U: np.ndarray, width: int) -> np.ndarray:
    """Eigenvectors U [k, n, n] with the freedom of `laplacian_identifiers` removed, where the width shows."""
    U = U.copy()
    same = np.diff(values) < SAME_EIGENVALUE  # [k, n - 1]
    for g in np.flatnonzero(same[:, :width].any(1)).tolist():
        starts = [0, *(np.flatnonzero(~same[g]) + 1).tolist(), len(values[g])]
        for a, b in pairwise(starts):
            if b - a > 1 and a < width:
                U[g, :, a:b] = _spanned(U[g, :, a:b] @ U[g, :, a:b].T, b - a)
    size = np.abs(U)
    first = (size >= size.max(1, keepdims=True) - SAME_SIZE).argmax(1)  # [k, n]
    U *= np.sign(np.take_along_axis(U, first[:, None], 1))
    return U


def _spanned(projector: np.ndarray, rank: int) -> np.ndarray:
    """Orthonormal columns [n, rank] with C C' = projector [n, n], by Cholesky with pivots."""
    columns = []
    for _ in range(rank):
        left = projector.diagonal()
        pivot = int((left >= left.max() - SAME_SIZE).argmax())
        columns.append(projector[:, pivot] / np.sqrt(projector[pivot, pivot]))
        projector = projector - np.outer(columns[-1], columns[-1])
    return np.stack(columns, 1)


def orthogonal_identifiers(n: int, width: int, generator: torch.Generator) -> Tensor:
    """Rows of a random orthogonal [n, n] matrix, zero-padded or cut to `width`, of norm 1: [n, width]."""
    return _random_rows(torch.ones(1, n, dtype=torch.bool, device=generator.device), width, generator)[0]


def _random_rows(real: Tensor, width: int, generator: torch.Generator) -> Tensor:
    """Orthogonal identifiers [B, N, width] of graphs whose nodes are `real` [B, N]; zero elsewhere.

    Outside the real nodes the Gaussian is replaced by the identity, so that one batched QR gives every
    graph an orthogonal matrix of its own size. The signs of R make Q uniform over such matrices.
    """
    B, N = real.shape
    G = torch.randn(B, N, N, generator=generator, device=generator.device)
    both = real.unsqueeze(-1) & real.unsqueeze(-2)
    Q, R = torch.linalg.qr(torch.where(both, G, torch.eye(N, device=G.device)))
    Q = Q * R.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    rows = pad(Q[..., :width], (0, max(0, width - N))) * real.unsqueeze(-1)  # [B, N, width]
    return normalize(rows, dim=-1)


def return_chances(graph: Graph, steps: int) -> Tensor:
    """The chance that a random walk is back at its node after 1, 2, ... steps: [n, steps].

    Diagonals of (D^-1 A)^k: at odd k they are zero but on and near odd cycles, and a ring of k atoms shows at
    step k. They need no signs and no order, so equal surroundings have equal chances.
    """
    A = adjacency(graph)
    W = A / A.sum(1, keepdim=True).clamp_min(1)
    found, power = [], torch.eye(len(graph), dtype=A.dtype)
    for _ in range(steps):
        power = power @ W
        found.append(power.diagonal())
    return torch.stack(found, 1).float()


def _walks(graphs: Sequence[Graph], width: int) -> list[Tensor]:
    """Laplacian identifiers in the first half of the columns, chances to return in the second."""
    half = _eigenvectors(width)
    return [
        torch.cat([P, return_chances(graph, width - half)], 1)
        for graph, P in zip(graphs, _laplacian(graphs, half), strict=True)
    ]


def _eigenvectors(width: int) -> int:
    """How many columns of `walks` are eigenvectors."""
    return (width + 1) // 2


def flip_signs(inputs: Inputs, generator: torch.Generator) -> Graphs:
    """Every eigenvector of every graph times a random sign: an `Augment` for Laplacian identifiers."""
    graphs = _graphs(inputs)
    P = graphs.identifiers  # [B, N, P]
    coin = torch.randint(0, 2, (len(graphs), 1, P.shape[-1]), generator=generator, device=P.device)
    return replace(graphs, identifiers=P * (2 * coin - 1).to(P.dtype))


def flip_walks(inputs: Inputs, generator: torch.Generator) -> Graphs:
    """`flip_signs` for the eigenvectors of `walks`; chances stay as they are."""
    graphs, flipped = _graphs(inputs), flip_signs(inputs, generator)
    half = _eigenvectors(graphs.identifiers.shape[-1])
    P = torch.cat([flipped.identifiers[..., :half], graphs.identifiers[..., half:]], -1)
    return replace(graphs, identifiers=P)


def redraw(inputs: Inputs, generator: torch.Generator) -> Graphs:
    """New random identifiers for every graph: an `Augment` for orthogonal identifiers."""
    graphs = _graphs(inputs)
    P = _random_rows(graphs.nodes >= 0, graphs.identifiers.shape[-1], generator)
    return replace(graphs, identifiers=P.to(graphs.identifiers.dtype))


def _graphs(inputs: Inputs) -> Graphs:
    if not isinstance(inputs, Graphs):
        raise InputError(f"expected Graphs, got {type(inputs).__name__}")
    return inputs


def _orthogonal(graphs: Sequence[Graph], width: int) -> list[Tensor]:
    """Orthogonal identifiers that stay the same for evaluation: graph i always draws what it drew before."""
    generator = torch.Generator().manual_seed(0)
    return [orthogonal_identifiers(len(graph), width, generator) for graph in graphs]


Identify = Callable[[Sequence[Graph], int], list[Tensor]]
IDENTIFIERS: dict[str, tuple[Identify, Augment]] = {  # how they are made, and how training varies them
    "laplacian": (_laplacian, flip_signs),
    "orthogonal": (_orthogonal, redraw),
    "walks": (_walks, flip_walks),
}


def identified(graphs: Sequence[Graph], identifiers: str = "laplacian", width: int = 16) -> Graphs:
    """Graphs as one batch with identifiers of the given kind: what a model is called with."""
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
    """Graphs with targets [N]; batches hold graphs of similar length; `augment` varies the identifiers."""
    inputs = identified(graphs, identifiers, width)
    lengths = (inputs.nodes >= 0).sum(1) + (inputs.edge_types >= 0).sum(1)
    return Dataset(inputs, targets, IDENTIFIERS[identifiers][1] if augment else None, lengths)


def max_tokens(graphs: Sequence[Graph]) -> int:
    """Tokens of the longest graph or complement: n + m, or n + n (n - 1) - m."""
    return max(max(len(g) + len(g.edges), len(g) ** 2 - len(g.edges)) for g in graphs)


def zinc(*, data_dir: Path | None = None, identifiers: str = "laplacian", width: int = 16) -> GraphTask:
    """Constrained solubility of 10,000 / 1,000 / 1,000 molecules; 28 atom types and 3 bond types."""
    read = {name: _read(name, data_dir) for name in ("train", "validation", "test")}
    parts = [dataset(g, y, identifiers, width, augment=name == "train") for name, (g, y, _) in read.items()]
    longest = max(max_tokens(graphs) for graphs, _, _ in read.values())
    return GraphTask(Splits(*parts), read["train"][2], width, longest, ZINC_NOTE)


def zinc_complement(
    *, data_dir: Path | None = None, identifiers: str = "laplacian", width: int = 16, edge_type: int = 0
) -> Graphs:
    """The complements of ZINC's test graphs, in order: 504 tokens on average, 1,285 at most, 33 MB."""
    graphs = [complement(graph, edge_type) for graph in _read("test", data_dir)[0]]
    return identified(graphs, identifiers, width)


def _read(split: str, data_dir: Path | None) -> tuple[list[Graph], Tensor, Vocabulary]:
    """Graphs, targets [N] and the vocabulary of a split stored as hub-style graph columns."""
    files = find("zinc", split, data_dir)
    vocabulary = Vocabulary.read(files[0].with_name("vocab.json"))
    columns = ["edge_index", "edge_attr", "node_feat", "y"]
    try:
        table = pa.concat_tables([pq.read_table(file, columns=columns) for file in files]).combine_chunks()
        index, bonds, atoms, y = (table[name].combine_chunks() for name in columns)
        m, n = (pc.list_value_length(x).to_numpy() for x in (bonds, atoms))
        ends, bonds, atoms = (x.flatten().flatten().to_numpy() for x in (index, bonds, atoms))
        bonds = bonds - 1  # stored 0 means no bond
        for what, types, known in (("atom", atoms, vocabulary.atoms), ("bond", bonds, vocabulary.bonds)):
            if types.min() < 0 or types.max() >= len(known):
                raise InputError(f"{what} types {types.min()}..{types.max()} leave vocab.json's {len(known)}")
        pieces = ((atoms, n), (ends, 2 * m), (bonds, m))
        rows = zip(*(np.split(x, count.cumsum()[:-1]) for x, count in pieces), strict=True)
        graphs = [Graph(*map(torch.tensor, (a, e.reshape(2, -1).T, b))) for a, e, b in rows]
        return graphs, torch.tensor(y.flatten().to_numpy()), vocabulary
    except (pa.ArrowException, ValueError, AttributeError) as error:
        raise InputError(f"{files[0]} and its siblings cannot be read as graphs ({error})") from None
