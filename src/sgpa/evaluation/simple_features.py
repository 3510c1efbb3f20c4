"""Simple features of inputs, for baselines: pixels, TF-IDF of tokens, counts of atoms with surroundings."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from sgpa.core.inputs import Graphs, Inputs
from sgpa.data import Dataset

Features = Any  # rows of features: a NumPy array or a sparse matrix [N, F]
MOST_TERMS = 20_000  # single tokens and pairs of tokens that count
PIXELS = 32  # along a side; larger images are averaged down
RADII = 3  # surroundings of an atom: the atom itself, its neighbours, theirs


def simple_features(train: Dataset, *others: Dataset) -> list[Features]:
    """Features of the training rows and of others; vocabulary, mean and scale are those of the training rows.

    Images: standardised pixels. Token ids: TF-IDF of single tokens and pairs, rows of norm 1. Graphs:
    log(1 + count) of atoms with their surroundings. Other tensors: the mean over tokens, standardised.

    >>> import torch
    >>> data = Dataset(torch.tensor([[5, 6, 5], [7, 7, 6]]), torch.tensor([0, 1]))
    >>> simple_features(data)[0].shape  # only 6 is in two rows
    (2, 1)
    """
    parts = (train, *others)
    inputs = train.inputs
    if isinstance(inputs, Graphs):
        return _counts([_environments(_graphs(part.inputs)) for part in parts], least=2, log=True)
    if isinstance(inputs, Tensor) and inputs.ndim == 2 and not inputs.is_floating_point():
        return _tf_idf(parts)
    return _standardised([_flat(part.inputs) for part in parts])


def feature_name(inputs: Inputs) -> str:
    """What `simple_features` are, in words."""
    if isinstance(inputs, Graphs):
        return "atom counts"
    if isinstance(inputs, Tensor) and inputs.ndim == 2 and not inputs.is_floating_point():
        return "TF-IDF"
    return "pixels" if isinstance(inputs, Tensor) and inputs.ndim == 4 else "mean features"


def _flat(inputs: Inputs) -> np.ndarray:
    """Images as rows of pixels; sequences of features as their mean over real tokens."""
    if isinstance(inputs, Tensor) and inputs.ndim == 4:
        x = inputs.double()
        return np.asarray((adaptive_avg_pool2d(x, PIXELS) if x.shape[-1] > PIXELS else x).flatten(1))
    values, padding = _sequences(inputs)  # [N, T, ...], [N, T]
    weight = (~padding).double() / (~padding).sum(1, keepdim=True).clamp_min(1)
    return np.asarray(torch.einsum("nt,ntf->nf", weight, values.double().flatten(2)))


def _sequences(inputs: Any) -> tuple[Tensor, Tensor]:
    """Features of every token and the padding mask, of whichever kind of inputs has them."""
    if isinstance(inputs, Tensor):
        values = inputs if inputs.ndim > 2 else inputs.unsqueeze(1)
        return values, torch.zeros(values.shape[:2], dtype=torch.bool)
    if hasattr(inputs, "padding"):
        return inputs.values, inputs.padding
    return inputs.layers, inputs.ids == 0


def _standardised(parts: Sequence[np.ndarray]) -> list[Features]:
    mean, std = parts[0].mean(0), parts[0].std(0)
    return [(part - mean) / np.where(std > 1e-9 * max(1.0, std.max()), std, np.inf) for part in parts]


def _tf_idf(parts: Sequence[Dataset]) -> list[Features]:
    counts = _counts([_terms(part) for part in parts], least=min(2, len(parts[0])), log=False)
    rows = counts[0].shape[0]
    seen = np.asarray((counts[0] > 0).sum(0)).ravel()  # training rows with the term     [F]
    idf = np.log((1 + rows) / (1 + seen)) + 1
    weighted = []
    for count in counts:
        x = count.multiply(idf).tocsr()
        norm = np.sqrt(np.asarray(x.multiply(x).sum(1)).ravel())
        weighted.append(sparse.diags(1 / np.maximum(norm, 1e-12)) @ x)
    return weighted


def _terms(data: Dataset) -> list[Counter[Any]]:
    """How often every token and every pair of tokens occurs in each row."""
    rows = _tensor(data.inputs).tolist()
    lengths = [len(row) for row in rows] if data.lengths is None else data.lengths.tolist()
    kept = [row[:length] for row, length in zip(rows, lengths, strict=True)]
    return [Counter(row) + Counter(pairwise(row)) for row in kept]


def _counts(parts: Sequence[list[Counter[Any]]], least: int, *, log: bool) -> list[Features]:
    """Counts of the terms that at least `least` training rows have, the most frequent ones, sparse [N, F]."""
    rows = Counter(term for row in parts[0] for term in row)
    common = [term for term, n in rows.most_common(MOST_TERMS) if n >= least] or list(rows)[:MOST_TERMS]
    index = {term: i for i, term in enumerate(common)}
    matrices = []
    for part in parts:
        cells = [
            (i, index[term], n) for i, row in enumerate(part) for term, n in row.items() if term in index
        ]
        i, j, n = zip(*cells, strict=True) if cells else ((), (), ())
        values = np.log1p(np.array(n, float)) if log else np.array(n, float)
        matrices.append(sparse.csr_array((values, (i, j)), (len(part), len(index))))
    return matrices


def _environments(graphs: Graphs) -> list[Counter[Any]]:
    """Counts of atoms, of atoms with their neighbours, and so on, and the size and rings of each graph."""
    nodes, edges, types = (t.tolist() for t in (graphs.nodes, graphs.edges, graphs.edge_types))
    return [_environment(*one) for one in zip(nodes, edges, types, strict=True)]


def _environment(nodes: list[int], edges: list[list[int]], types: list[int]) -> Counter[Any]:
    names: list[Any] = [node for node in nodes if node >= 0]
    bonds = [(u, v, kind) for (u, v), kind in zip(edges, types, strict=True) if kind >= 0]
    neighbours: list[list[tuple[int, int]]] = [[] for _ in names]
    for u, v, kind in bonds:
        neighbours[u].append((kind, v))
    counts: Counter[Any] = Counter()
    counts["atoms"] = len(names)
    counts["rings"] = max(0, len(bonds) // 2 - len(names) + 1)
    for radius in range(RADII):
        counts.update((radius, name) for name in names)
        names = [
            hash((name, tuple(sorted((kind, names[v]) for kind, v in near))))
            for name, near in zip(names, neighbours, strict=True)
        ]  # of integers only, so the same in every process
    return counts


def _graphs(inputs: Inputs) -> Graphs:
    assert isinstance(inputs, Graphs)
    return inputs


def _tensor(inputs: Inputs) -> Tensor:
    assert isinstance(inputs, Tensor)
    return inputs
