"""Molecules that a user brings: SMILES to graphs, files of them, and ZINC's label. Needs the extra `graph`.

A molecule is drawn as ZINC draws its own: aromatic rings become alternating single and double bonds, atoms
are numbered along the canonical SMILES of that drawing, hydrogens are not nodes. An atom's type is its
element, the hydrogens that the SMILES writes in brackets and its charge: "C", "C H1" (a stereo centre),
"N H1 +".
"""

import csv
import importlib
import importlib.util
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from sgpa.core.errors import InputError, SgpaError
from sgpa.data.graphs.batch import BONDS, Vocabulary
from sgpa.data.graphs.graph import Graph

SMILES_NAMES = ("smiles", "canonical_smiles", "smile", "molecule")  # columns looked for, in any case
TARGET_NAMES = ("target", "y", "label", "value")
SHOWN = 3  # bad rows that an error spells out
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Drawing:
    """A molecule before its atoms are numbered by a vocabulary."""

    atoms: tuple[str, ...]
    bonds: tuple[tuple[int, int, str], ...]  # both directions, sorted: from, to, type


class Molecules(NamedTuple):
    """What a file holds."""

    graphs: list[Graph]
    targets: Tensor  # [N] float
    vocabulary: Vocabulary


def from_smiles(smiles: str, vocabulary: Vocabulary) -> Graph:
    """The graph of a molecule, with node and edge types of the vocabulary."""
    return _numbered(draw(smiles), vocabulary)


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
    if strange := sorted({kind for _, _, kind in bonds} - set(BONDS)):
        raise InputError(f"{smiles!r} has a bond of type {strange[0]}; known are {', '.join(BONDS)}")
    return Drawing(tuple(_atom_type(atom) for atom in plain.GetAtoms()), tuple(sorted(bonds)))


def learn_vocabulary(drawings: Sequence[Drawing]) -> Vocabulary:
    """All atom types of the molecules, the most frequent first."""
    counts = Counter(atom for drawing in drawings for atom in drawing.atoms)
    return Vocabulary(tuple(sorted(counts, key=lambda atom: (-counts[atom], atom))))


def read_molecules(
    path: str | Path, smiles_column: str | None = None, target_column: str | None = None
) -> Molecules:
    """Labelled molecules of a CSV or Parquet file, and the vocabulary learned from them.

    Columns that are not named are found by name (smiles; target, y, label, value), the target also as the
    only other column. Rows in messages count from 1 and do not count the header.
    """
    path = Path(path)
    table = _table(path)
    smiles_column = smiles_column or _guess(path, table, SMILES_NAMES, "smiles_column")
    others = [name for name in table.column_names if name != smiles_column]
    only = others[0] if len(others) == 1 else None
    target_column = target_column or only or _guess(path, table, TARGET_NAMES, "target_column")
    drawings = _each(path, _column(path, table, smiles_column), draw)
    targets = _each(path, _column(path, table, target_column), _number)
    vocabulary = learn_vocabulary(drawings)
    graphs = [_numbered(drawing, vocabulary) for drawing in drawings]
    return Molecules(graphs, torch.tensor(targets, dtype=torch.float32), vocabulary)


def read_smiles(path: str | Path, vocabulary: Vocabulary, smiles_column: str | None = None) -> list[Graph]:
    """Molecules to predict for, with the vocabulary of the model; targets are not needed."""
    path = Path(path)
    table = _table(path)
    smiles_column = smiles_column or _guess(path, table, SMILES_NAMES, "smiles_column")
    return _each(path, _column(path, table, smiles_column), lambda value: from_smiles(value, vocabulary))


def zinc_label(smiles: str) -> float:
    """ZINC's target: 0.698 logP - 1.198 SA - 3.475 cycle + 2.112 (penalised logP of normalised parts).

    logP is RDKit's MolLogP, SA the synthetic accessibility of RDKit's Contrib directory (which unpickles its
    own table from there), and cycle = max(0, longest ring of a cycle basis rooted at atom 0 - 6). A cycle
    basis is not unique: 11,999 of ZINC's 12,000 labels come back to 5e-7, one (bridged rings) is one ring
    atom off.
    """
    Chem, networkx = _extra("rdkit.Chem"), _extra("networkx")
    with _extra("rdkit.rdBase").BlockLogs():
        molecule = _parsed(Chem, smiles)
    log_p = _extra("rdkit.Chem.Crippen").MolLogP(molecule)
    rings = networkx.cycle_basis(networkx.from_numpy_array(Chem.GetAdjacencyMatrix(molecule)), root=0)
    cycle = max(0, max(map(len, rings), default=0) - 6)
    accessibility = _accessibility()(molecule)
    return float(
        0.6976317996202132 * log_p
        - 1.1981675993065035 * accessibility
        - 3.4751391087284276 * cycle
        + 2.111829973763026
    )


def _extra(name: str) -> Any:
    """A module of the optional packages, imported when it is needed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SgpaError(f"molecules need RDKit and networkx: pip install 'sgpa[graph]' ({error})") from None


@cache
def _accessibility() -> Callable[[Any], float]:
    """The function of RDKit's Contrib that scores synthetic accessibility."""
    path = Path(_extra("rdkit.RDConfig").RDContribDir) / "SA_Score" / "sascorer.py"
    spec = importlib.util.spec_from_file_location("sascorer", path)
    if not path.exists() or spec is None or spec.loader is None:
        raise SgpaError(
            f"ZINC's label needs RDKit's Contrib, which this build lacks ({path}); use the wheel from PyPI"
        )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    score: Callable[[Any], float] = module.calculateScore
    return score


def _parsed(Chem: Any, smiles: object) -> Any:
    """RDKit's molecule, or an error that says what is wrong with the SMILES."""
    if not isinstance(smiles, str) or not smiles.strip():
        raise InputError("the SMILES is missing")
    molecule = Chem.MolFromSmiles(smiles.strip()) if smiles.isascii() else None
    if molecule is not None and molecule.GetNumAtoms():
        return molecule
    rough = Chem.MolFromSmiles(smiles.strip(), sanitize=False) if smiles.isascii() else None
    problems = [] if rough is None else [problem.Message() for problem in Chem.DetectChemistryProblems(rough)]
    why = "; ".join(" ".join(problem.split()) for problem in problems) or "it cannot be parsed"
    raise InputError(f"invalid SMILES {smiles!r}: {why}; correct it or remove the row")


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


def _numbered(drawing: Drawing, vocabulary: Vocabulary) -> Graph:
    """Names to type numbers; an atom or bond that the vocabulary lacks is an error."""
    for what, known, names in (
        ("atom", vocabulary.atoms, drawing.atoms),
        ("bond", vocabulary.bonds, [kind for _, _, kind in drawing.bonds]),
    ):
        if strange := sorted(set(names) - set(known)):
            raise InputError(
                f"{what} {strange[0]!r} does not occur in the training data ({', '.join(known)})"
            )
    ends = [(start, end) for start, end, _ in drawing.bonds]
    return Graph(
        torch.tensor([vocabulary.atoms.index(atom) for atom in drawing.atoms]),
        torch.tensor(ends, dtype=torch.int64).reshape(-1, 2),
        torch.tensor([vocabulary.bonds.index(kind) for _, _, kind in drawing.bonds], dtype=torch.int64),
    )


def _table(path: Path) -> pa.Table:
    """A CSV or Parquet file with at least one row; the values of a CSV stay text."""
    try:
        kind = path.suffix.lower()
        if kind not in (".csv", ".parquet"):
            raise InputError("the name must end in .csv or .parquet")
        table = pq.read_table(path) if kind == ".parquet" else _csv(path)
    except (OSError, ValueError, csv.Error, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    if table.num_rows == 0:
        raise InputError(f"{path} has no rows")
    return table


def _csv(path: Path) -> pa.Table:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file, strict=True))
    while rows and not rows[-1]:  # blank lines at the end
        rows.pop()
    header = rows[0] if rows else []
    for i, row in enumerate(rows[1:], 1):
        if len(row) != len(header):
            raise InputError(f"row {i} has {len(row)} values, the header has {len(header)}")
    columns = [pa.array([row[j] for row in rows[1:]], pa.string()) for j in range(len(header))]
    return pa.table(columns, header)


def _guess(path: Path, table: pa.Table, known: Sequence[str], option: str) -> str:
    """The column with the first of the known names."""
    names: dict[str, str] = {name.lower(): name for name in reversed(table.column_names)}
    for name in known:
        if name in names:
            return names[name]
    raise InputError(
        f"{path}: no column is called {', '.join(known)}; name one of {', '.join(table.column_names)} "
        f"as {option}"
    )


def _column(path: Path, table: pa.Table, name: str) -> list[Any]:
    if table.column_names.count(name) != 1:
        raise InputError(f"{path}: no single column {name!r} among {', '.join(table.column_names)}")
    values: list[Any] = table[name].to_pylist()
    return values


def _each(path: Path, values: Sequence[Any], read: Callable[[Any], T]) -> list[T]:
    try:
        return read_each(((f"row {i}", value) for i, value in enumerate(values, 1)), read)
    except InputError as error:
        raise InputError(f"{path}, {error}") from None


def read_each(values: Iterable[tuple[str, S]], read: Callable[[S], T]) -> list[T]:
    """`read` of every named value; the first that cannot be read are named in one error."""
    found, bad = [], []
    for name, value in values:
        try:
            found.append(read(value))
        except InputError as error:
            bad.append(f"{name}: {error}")
    if bad:
        more = f"; and {len(bad) - SHOWN} more rows" if len(bad) > SHOWN else ""
        raise InputError("; ".join(bad[:SHOWN]) + more)
    return found


def _number(value: Any) -> float:
    if isinstance(value, list) and len(value) == 1:  # as graph sets on the hub have it
        value = value[0]
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        what = "is missing" if value in (None, "") else f"{value!r} is not a finite number"
        raise InputError(f"the target {what}; correct it or remove the row")
    return number
