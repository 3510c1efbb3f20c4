"""Molecules as graphs: ZINC."""

from dataclasses import dataclass
from pathlib import Path

from sgpa.core.errors import check_fields
from sgpa.data.graphs.identifiers import IDENTIFIERS
from sgpa.data.graphs.zinc import zinc, zinc_complement
from sgpa.evaluation.evaluate import Outside
from sgpa.experiments.tasks.base import Task
from sgpa.inference.readers import MoleculeReader


@dataclass(frozen=True, kw_only=True)
class ZincConfig:
    """Constrained solubility of 12,000 molecules; the complements of the test graphs are foreign.

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
                ("width", self.width, self.width >= 1, "1 or more"),
                ("bond", self.bond, self.bond >= 0, "0 or more"),
            ],
        )

    def load(self, seed: int, data_dir: Path | None = None) -> Task:
        """The same split for every seed."""
        del seed
        found = zinc(data_dir=data_dir, identifiers=self.identifiers, width=self.width)

        def complements() -> Outside:
            graphs = zinc_complement(
                data_dir=data_dir, identifiers=self.identifiers, width=self.width, edge_type=self.bond
            )
            return Outside(graphs)

        names = found.vocabulary
        reader = MoleculeReader(
            atoms=names.atoms, bonds=names.bonds, identifiers=self.identifiers, width=self.width
        )
        outside = {"zinc-ood": complements}
        return Task(found.splits, found.sizes, reader=reader, outside=outside, note=found.note)
