"""Molecules as graphs: ZINC, and a user's table of SMILES."""

from dataclasses import dataclass
from pathlib import Path

from sgpa.core.arguments import checked
from sgpa.core.errors import check_fields
from sgpa.core.limits import size_check
from sgpa.data.graphs import batch
from sgpa.data.graphs.identifiers import IDENTIFIERS
from sgpa.data.graphs.molecules import read_molecules
from sgpa.data.graphs.zinc import zinc, zinc_complement
from sgpa.evaluation.results import OodSet
from sgpa.experiments.tasks.base import OOD_ROWS, Task, check_split, split_note, split_user_rows
from sgpa.experiments.tasks.display import show_molecules
from sgpa.experiments.tasks.made_inputs import random_atoms
from sgpa.inference.readers import MoleculeReader
from sgpa.inference.readers.molecules import MOST_COLUMNS
from sgpa.training.fit_targets import check_values


@checked
@dataclass(frozen=True, kw_only=True)
class ZincConfig:
    """Constrained solubility of 12,000 molecules; the complements of the test graphs are out-of-distribution.

    `bond` is the type that every bond of a complement has (0 is a single bond).
    """

    identifiers: str = "laplacian"
    width: int = 16
    bond: int = 0

    dataset = "zinc"
    augmentation = ""

    def __post_init__(self) -> None:
        known = ", ".join(IDENTIFIERS)
        check_fields(
            "task",
            [
                ("identifiers", self.identifiers, self.identifiers in IDENTIFIERS, known),
                size_check("width", self.width, MOST_COLUMNS),
                ("bond", self.bond, self.bond >= 0, "0 or more"),
            ],
        )

    def load(self, seed: int, data_dir: Path | None = None) -> Task:
        """The same split for every seed."""
        del seed
        data = zinc(data_dir=data_dir, identifiers=self.identifiers, width=self.width)

        def complements() -> OodSet:
            graphs = zinc_complement(
                data_dir=data_dir, identifiers=self.identifiers, width=self.width, edge_type=self.bond
            )
            return OodSet(graphs)

        names = data.vocabulary
        reader = MoleculeReader(
            atoms=names.atoms, bonds=names.bonds, identifiers=self.identifiers, width=self.width
        )
        ood = {"zinc-ood": complements}
        return Task(data.splits, data.sizes, reader=reader, ood=ood, note=data.note)


@checked
@dataclass(frozen=True, kw_only=True)
class MoleculeTableConfig:
    """A CSV or Parquet table with a column of SMILES and one of numbers; rows are split by `split_seed`.

    In a "stratified" `split` 15 % of the rows to learn from are held out, in a "random" one 10 %.
    """

    path: str
    smiles_column: str | None = None
    target_column: str | None = None
    identifiers: str = "walks"
    width: int = 32
    split_seed: int = 0
    split: str = "random"

    augmentation = ""

    def __post_init__(self) -> None:
        known = ", ".join(IDENTIFIERS)
        check_fields(
            "task",
            [
                ("identifiers", self.identifiers, self.identifiers in IDENTIFIERS, known),
                size_check("width", self.width, MOST_COLUMNS),
                check_split(self.split),
            ],
        )

    @property
    def dataset(self) -> str:
        """Name of the file."""
        return Path(self.path).stem

    def load(self, seed: int, data_dir: Path | None = None) -> Task:
        """Read and split the molecules."""
        del seed, data_dir
        molecules = read_molecules(Path(self.path), self.smiles_column, self.target_column)
        graphs, names = molecules.graphs, molecules.vocabulary
        check_values(molecules.targets, f"{self.path}: all {len(graphs)} molecules")
        data = batch.dataset(graphs, molecules.targets, self.identifiers, self.width, augment=True)
        splits, _, test = split_user_rows(data, self.split_seed, self.split)
        return Task(
            splits,
            sizes={
                "node_types": len(names.atoms),
                "edge_types": len(names.bonds),
                "identifier_width": self.width,
                "max_tokens": batch.max_tokens(graphs),
            },
            outputs=1,
            reader=MoleculeReader(
                atoms=names.atoms,
                bonds=names.bonds,
                identifiers=self.identifiers,
                width=self.width,
                column=self.smiles_column,
            ),
            ood={
                "random-atoms": lambda: OodSet(random_atoms(splits.test.inputs, len(names.atoms))[:OOD_ROWS])
            },
            display=show_molecules([molecules.smiles[i] for i in test.tolist()]),
            note=split_note(splits, self.split),
            content=f"{' '.join(names.atoms)} {sum(int(graph.nodes.sum()) for graph in graphs)}",
        )
