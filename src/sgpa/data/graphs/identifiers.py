"""Node identifiers, from which attention can infer which edge touches which node."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from sgpa.core.errors import InputError
from sgpa.core.inputs import Graphs, Inputs
from sgpa.data.dataset import Augment
from sgpa.data.graphs.graph import Graph, adjacency

SAME_EIGENVALUE = 1e-8  # closer eigenvalues share an eigenspace; float64 is exact to about 1e-15
SAME_SIZE = 1e-6  # entries closer than this are tied, and the lowest node index decides


def laplacian_identifiers(graph: Graph, width: int) -> Tensor:
    """The first eigenvectors of I - D^-1/2 A D^-1/2 as columns, [n, width], zeros beyond the n-th.

    Eigenvalues ascend and the trivial one is included; degrees are at least 1. Eigenvectors are free up to
    sign, and up to rotation where eigenvalues coincide. Both are settled by rule, so that every machine gets
    the same ones: the largest entry is positive, and an eigenspace with projector Pi is spanned by the
    pivoted Cholesky factor of Pi, largest diagonal entry first. Ties go to the lower node index: there, and
    only there, the identifiers depend on the order of the nodes.
    """
    return _laplacian([graph], width)[0]


def _of_each(graphs: Sequence[Graph], make: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """`make(A)[i]` for every graph, with A [k, n, n] the adjacency of all graphs of one size."""
    identifiers: list[Tensor] = [torch.empty(0)] * len(graphs)
    sizes = np.array([len(graph) for graph in graphs])
    for n in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == n).tolist()
        for i, P in zip(rows, make(torch.stack([adjacency(graphs[i]) for i in rows])), strict=True):
            identifiers[i] = P
    return identifiers


def _laplacian(graphs: Sequence[Graph], width: int) -> list[Tensor]:
    """`laplacian_identifiers` of many graphs."""
    return _of_each(graphs, lambda A: _eigenvectors(A, width))


def _eigenvectors(A: Tensor, width: int) -> Tensor:
    """Identifiers [k, n, width] of graphs with adjacency A [k, n, n]."""
    n = A.shape[-1]
    scale = A.sum(-1).clamp_min(1).rsqrt()  # [k, n]
    L = torch.eye(n, dtype=A.dtype) - scale.unsqueeze(-1) * A * scale.unsqueeze(-2)
    values, U = torch.linalg.eigh(L)  # [k, n], [k, n, n]
    settled = torch.from_numpy(_settled(values.numpy(), U.numpy(), width)[..., :width])
    return pad(settled.float(), (0, max(0, width - n)))


def _settled(values: np.ndarray, U: np.ndarray, width: int) -> np.ndarray:
    """Eigenvectors U [k, n, n] in the basis that `laplacian_identifiers` defines, for the first `width`."""
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
    """The probability that a random walk is back at its node after 1, 2, ... steps: [n, steps].

    Diagonals of (D^-1 A)^k. At odd k they are zero except on and near odd cycles; a ring of k atoms shows at
    step k. They have no sign or order to choose, so nodes with equal surroundings have equal values.
    """
    return _returns(adjacency(graph).unsqueeze(0), steps)[0]


def _returns(A: Tensor, steps: int) -> Tensor:
    """`return_chances` [k, n, steps] of graphs with adjacency A [k, n, n]."""
    W = A / A.sum(-1, keepdim=True).clamp_min(1)
    chances = A.new_zeros(*A.shape[:2], steps)  # [k, n, steps]
    power = torch.eye(A.shape[-1], dtype=A.dtype).expand_as(A)
    for step in range(steps):
        power = power @ W
        chances[..., step] = power.diagonal(dim1=-2, dim2=-1)
    return chances.float()


def _walks(graphs: Sequence[Graph], width: int) -> list[Tensor]:
    """Laplacian identifiers in the first half of the columns, return probabilities in the second."""
    half = _first_half(width)
    return _of_each(graphs, lambda A: torch.cat([_eigenvectors(A, half), _returns(A, width - half)], -1))


def _first_half(width: int) -> int:
    """How many columns of `walks` are eigenvectors."""
    return (width + 1) // 2


def flip_signs(inputs: Inputs, generator: torch.Generator) -> Graphs:
    """Every eigenvector of every graph times a random sign: an `Augment` for Laplacian identifiers."""
    graphs = _graphs(inputs)
    P = graphs.identifiers  # [B, N, P]
    coin = torch.randint(0, 2, (len(graphs), 1, P.shape[-1]), generator=generator, device=P.device)
    return replace(graphs, identifiers=P * (2 * coin - 1).to(P.dtype))


def flip_walks(inputs: Inputs, generator: torch.Generator) -> Graphs:
    """`flip_signs` for the eigenvectors of `walks`; return probabilities stay."""
    graphs, flipped = _graphs(inputs), flip_signs(inputs, generator)
    half = _first_half(graphs.identifiers.shape[-1])
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
    """Orthogonal identifiers with a fixed seed: the same for every call with the same graphs."""
    generator = torch.Generator().manual_seed(0)
    return [orthogonal_identifiers(len(graph), width, generator) for graph in graphs]


Identify = Callable[[Sequence[Graph], int], list[Tensor]]
IDENTIFIERS: dict[
    str, tuple[Identify, Augment]
] = {  # how they are computed, and the augmentation that varies them in training
    "laplacian": (_laplacian, flip_signs),
    "orthogonal": (_orthogonal, redraw),
    "walks": (_walks, flip_walks),
}
