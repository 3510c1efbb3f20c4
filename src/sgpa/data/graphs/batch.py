"""Graphs as a padded batch, and the ZINC regression task.

A graph becomes tokens in `models/graph.py`: one per node, one per directed edge; which edge touches which
node is said by the identifiers of `identifiers.py`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from sgpa.core.errors import InputError, check_fields
from sgpa.core.inputs import Graphs
from sgpa.data.dataset import Dataset, Splits
from sgpa.data.graphs.graph import Graph, complement
from sgpa.data.graphs.identifiers import IDENTIFIERS
from sgpa.data.sources import find

BONDS = ("SINGLE", "DOUBLE", "TRIPLE")
ZINC_NOTE = (
    "ZINC: trained on a uniform 10,000 of the benchmark's pool of 220,011 molecules, not on the benchmark's "
    "own 10,000; validation and test are the benchmark's."
)


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
