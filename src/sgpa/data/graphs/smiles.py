"""SMILES to graphs, as ZINC draws its molecules. Needs the extra `graph`.

Aromatic rings become alternating single and double bonds, atoms are numbered along the canonical SMILES of
that drawing, and hydrogens are not nodes. The type of an atom is its element, the hydrogens that the SMILES
writes in brackets, and its charge: "C", "C H1" (a stereo centre), "N H1 +".
"""

import importlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sgpa.core.errors import InputError, SgpaError
from sgpa.data.graphs.graph import Graph
from sgpa.data.graphs.vocabulary import BONDS, Vocabulary


@dataclass(frozen=True)
class Drawing:
    """A molecule whose atoms and bonds are names, not yet types of a vocabulary."""

    atoms: tuple[str, ...]
    bonds: tuple[tuple[int, int, str], ...]  # both directions, sorted: from, to, type


def from_smiles(smiles: str, vocabulary: Vocabulary) -> Graph:
    """The graph of a molecule.

    Args:
        smiles: The molecule.
        vocabulary: Its atom and bond types; another atom is an error.

    Returns:
        A graph with node and edge types of the vocabulary.

    Example:
        >>> from_smiles("CCO", Vocabulary(("C", "O"))).nodes
        tensor([0, 0, 1])
    """
    return to_graph(draw(smiles), vocabulary)


def draw(smiles: str) -> Drawing:
    """Atoms and bonds of a SMILES."""
    Chem, rdBase = _extra("rdkit.Chem"), _extra("rdkit.rdBase")
    with rdBase.BlockLogs():
        molecule = _parsed(Chem, smiles)
        Chem.Kekulize(molecule, clearAromaticFlags=True)
        plain = Chem.MolFromSmiles(Chem.MolToSmiles(molecule), sanitize=False)
    bonds = [
        (start, end, str(bond.GetBondType()))
        for bond in plain.GetBonds()
        for start, end in _both(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())
    ]
    if unknown := sorted({kind for _, _, kind in bonds} - set(BONDS)):
        raise InputError(f"{smiles!r} has a bond of type {unknown[0]}; known are {', '.join(BONDS)}")
    return Drawing(tuple(_atom_type(atom) for atom in plain.GetAtoms()), tuple(sorted(bonds)))


def learn_vocabulary(drawings: Sequence[Drawing]) -> Vocabulary:
    """All atom types of the molecules, the most frequent first."""
    counts = Counter(atom for drawing in drawings for atom in drawing.atoms)
    return Vocabulary(tuple(sorted(counts, key=lambda atom: (-counts[atom], atom))))


def _extra(name: str) -> Any:
    """A module of RDKit, which is optional."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SgpaError(f"molecules need RDKit: pip install rdkit ({error})") from None


def _parsed(Chem: Any, smiles: object) -> Any:
    """RDKit's molecule, or an error with the reason why the SMILES is invalid."""
    if not isinstance(smiles, str) or not smiles.strip():
        raise InputError("the SMILES is missing")
    if len(smiles.split()) > 1:  # RDKit would read the first word, and take the others for a name
        raise InputError(f"invalid SMILES {smiles!r}: it contains a blank; correct it or remove the row")
    molecule = Chem.MolFromSmiles(smiles.strip()) if smiles.isascii() else None
    if molecule is not None and molecule.GetNumAtoms():
        return molecule
    unchecked = Chem.MolFromSmiles(smiles.strip(), sanitize=False) if smiles.isascii() else None
    problems = (
        []
        if unchecked is None
        else [problem.Message() for problem in Chem.DetectChemistryProblems(unchecked)]
    )
    reason = "; ".join(" ".join(problem.split()) for problem in problems) or "it cannot be parsed"
    raise InputError(f"invalid SMILES {smiles!r}: {reason}; correct it or remove the row")


def _atom_type(atom: Any) -> str:
    hydrogens, charge = atom.GetNumExplicitHs(), atom.GetFormalCharge()
    size = "" if abs(charge) == 1 else str(abs(charge))
    parts = [
        atom.GetSymbol(),
        f"H{hydrogens}" if hydrogens else "",
        f"{'+' if charge > 0 else '-'}{size}" if charge else "",
    ]
    return " ".join(part for part in parts if part)


def _both(start: int, end: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (start, end), (end, start)


def to_graph(drawing: Drawing, vocabulary: Vocabulary) -> Graph:
    """Names as types of the vocabulary; an unknown atom or bond is an error."""
    for what, known, names in (
        ("atom", vocabulary.atoms, drawing.atoms),
        ("bond", vocabulary.bonds, [kind for _, _, kind in drawing.bonds]),
    ):
        if unknown := sorted(set(names) - set(known)):
            raise InputError(
                f"{what} {unknown[0]!r} does not occur in the training data ({', '.join(known)})"
            )
    ends = [(start, end) for start, end, _ in drawing.bonds]
    return Graph(
        torch.tensor([vocabulary.atoms.index(atom) for atom in drawing.atoms]),
        torch.tensor(ends, dtype=torch.int64).reshape(-1, 2),
        torch.tensor([vocabulary.bonds.index(kind) for _, _, kind in drawing.bonds], dtype=torch.int64),
    )
