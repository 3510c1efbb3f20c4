"""ZINC: constrained solubility of molecules, and the complements of its test graphs as OOD inputs."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from sgpa.core.errors import InputError
from sgpa.core.inputs import Graphs
from sgpa.data.dataset import Splits
from sgpa.data.graphs.batch import dataset, identified, max_tokens
from sgpa.data.graphs.graph import Graph, complement
from sgpa.data.graphs.vocabulary import Vocabulary
from sgpa.data.sources import find

NOTE = (
    "ZINC: trained on a uniform 10,000 of the benchmark's pool of 220,011 molecules, not on the benchmark's "
    "own 10,000; validation and test are the benchmark's."
)
COLUMNS = ("edge_index", "edge_attr", "node_feat", "y")


@dataclass(frozen=True)
class GraphTask:
    """A data set of graphs and the sizes a model needs: `GraphConfig(**task.sizes)`."""

    splits: Splits
    vocabulary: Vocabulary
    width: int  # of the node identifiers
    max_tokens: int
    note: str = ""  # shown beside every number of this task

    @property
    def sizes(self) -> dict[str, int]:
        """The fields of a `GraphConfig`."""
        return {
            "node_types": len(self.vocabulary.atoms),
            "edge_types": len(self.vocabulary.bonds),
            "identifier_width": self.width,
            "max_tokens": self.max_tokens,
        }


def zinc(*, data_dir: Path | None = None, identifiers: str = "laplacian", width: int = 16) -> GraphTask:
    """ZINC's 10,000 / 1,000 / 1,000 molecules; 28 atom types and 3 bond types.

    Args:
        data_dir: The folder that holds `zinc/`; by default `$SGPA_DATA` and the cache.
        identifiers: Kind of node identifiers, a key of `IDENTIFIERS`.
        width: Columns of the identifiers.

    Returns:
        The splits, the vocabulary and the sizes for a model. Training batches vary the identifiers.

    Example:
        >>> task = zinc()  # doctest: +SKIP
        >>> task.splits.train.targets.shape  # doctest: +SKIP
        torch.Size([10000])
    """
    read = {name: _read(name, data_dir) for name in ("train", "validation", "test")}
    parts = [dataset(g, y, identifiers, width, augment=name == "train") for name, (g, y, _) in read.items()]
    longest = max(max_tokens(graphs) for graphs, _, _ in read.values())
    return GraphTask(Splits(*parts), read["train"][2], width, longest, NOTE)


def zinc_complement(
    *, data_dir: Path | None = None, identifiers: str = "laplacian", width: int = 16, edge_type: int = 0
) -> Graphs:
    """The complements of ZINC's test graphs, in order: 504 tokens on average, 1,285 at most, 33 MB."""
    graphs = [complement(graph, edge_type) for graph in _read("test", data_dir)[0]]
    return identified(graphs, identifiers, width)


def _read(split: str, data_dir: Path | None) -> tuple[list[Graph], Tensor, Vocabulary]:
    """Graphs, targets [N] and the vocabulary of a split stored as the hub's graph columns."""
    files = find("zinc", split, data_dir)
    vocabulary = Vocabulary.read(files[0].with_name("vocab.json"))
    try:
        table = pa.concat_tables([pq.read_table(file, columns=list(COLUMNS)) for file in files])
        index, bonds, atoms, y = (table[name].combine_chunks() for name in COLUMNS)
        m, n = (pc.list_value_length(x).to_numpy() for x in (bonds, atoms))
        ends, bonds, atoms = (x.flatten().flatten().to_numpy() for x in (index, bonds, atoms))
        bonds = bonds - 1  # stored 0 means no bond
        for what, types, known in (("atom", atoms, vocabulary.atoms), ("bond", bonds, vocabulary.bonds)):
            if types.min() < 0 or types.max() >= len(known):
                raise InputError(
                    f"{what} types are {types.min()}..{types.max()}, vocab.json has 0..{len(known) - 1}"
                )
        pieces = ((atoms, n), (ends, 2 * m), (bonds, m))
        rows = zip(*(np.split(x, count.cumsum()[:-1]) for x, count in pieces), strict=True)
        graphs = [Graph(*map(torch.tensor, (a, e.reshape(2, -1).T, b))) for a, e, b in rows]
        return graphs, torch.tensor(y.flatten().to_numpy()), vocabulary
    except (pa.ArrowException, ValueError, AttributeError) as error:
        raise InputError(f"{files[0]} and its siblings cannot be read as graphs ({error})") from None
