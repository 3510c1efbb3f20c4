"""Molecules as SMILES."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from sgpa.core.arguments import checked
from sgpa.core.errors import check_fields
from sgpa.data.graphs.batch import identified
from sgpa.data.graphs.identifiers import IDENTIFIERS
from sgpa.data.graphs.molecules import SMILES_NAMES, read_each
from sgpa.data.graphs.smiles import from_smiles
from sgpa.data.graphs.vocabulary import BONDS, Vocabulary
from sgpa.inference.readers.base import Reader, Rows
from sgpa.inference.readers.texts import column_names, read_rows

MOST_COLUMNS = 4096  # columns of the identifiers


@checked
@dataclass(frozen=True, kw_only=True)
class MoleculeReader(Reader):
    """SMILES as graphs with the atom and bond types of training; `column` is theirs in tables."""

    atoms: tuple[str, ...]
    bonds: tuple[str, ...] = BONDS
    identifiers: str = "laplacian"
    width: int = 16
    column: str | None = None

    kind: ClassVar[str] = "molecules"
    row: ClassVar[str] = "smiles"
    columns: ClassVar[tuple[str, ...]] = SMILES_NAMES

    def __post_init__(self) -> None:
        kinds = ", ".join(IDENTIFIERS)
        check_fields(
            "molecules",
            [
                ("identifiers", self.identifiers, self.identifiers in IDENTIFIERS, kinds),
                ("width", self.width, 1 <= self.width <= MOST_COLUMNS, f"1 to {MOST_COLUMNS}"),
            ],
        )

    def read(self, files: Sequence[Path], texts: Sequence[str] = (), column: str | None = None) -> Rows:
        """One SMILES a line of .txt files, the SMILES column of tables, and SMILES given directly."""
        metadata = read_rows(files, texts, column, column_names(self.column, SMILES_NAMES), "smiles")
        vocabulary = Vocabulary(self.atoms, self.bonds)
        named = ((f"{row['file'] or 'text'}, row {row['row']}", row["smiles"]) for row in metadata)
        graphs = read_each(named, lambda smiles: from_smiles(smiles, vocabulary))
        return Rows(identified(graphs, self.identifiers, self.width), metadata)
