"""The names of node and edge types."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from sgpa.core.errors import CheckpointError, InputError
from sgpa.core.files import read_json

BONDS = ("SINGLE", "DOUBLE", "TRIPLE")


class SavedVocabulary(TypedDict):
    """`vocab.json`."""

    atom_types: list[str]
    bond_types: list[str]


@dataclass(frozen=True)
class Vocabulary:
    """Node type i is `atoms[i]`, such as "C" or "N H1 +"; edge type i is `bonds[i]`."""

    atoms: tuple[str, ...]
    bonds: tuple[str, ...] = BONDS

    def to_json(self) -> dict[str, list[str]]:
        """The content of a `vocab.json`, where bond type 0 means that there is no bond."""
        return {"atom_types": list(self.atoms), "bond_types": ["NONE", *self.bonds]}

    @staticmethod
    def read(path: Path) -> "Vocabulary":
        """The vocabulary of a `vocab.json`."""
        try:
            names = read_json(path, SavedVocabulary)
        except CheckpointError as error:
            raise InputError(f"{path}: no vocabulary with atom_types and bond_types ({error})") from None
        bonds = tuple(bond for bond in names["bond_types"] if bond != "NONE")
        return Vocabulary(tuple(names["atom_types"]), bonds)
