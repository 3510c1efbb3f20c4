import importlib.util
import json

import pyarrow.parquet as pq
import pytest
import torch

from sgpa.core.errors import InputError, SgpaError
from sgpa.data.graphs import smiles as module
from sgpa.data.graphs.batch import identified
from sgpa.data.graphs.molecules import read_molecules
from sgpa.data.graphs.smiles import from_smiles
from sgpa.data.graphs.vocabulary import Vocabulary
from sgpa.data.graphs.zinc import zinc
from support.paths import DATA, needs
from support.tables import parquet, write

TEST = DATA / "zinc" / "test-00000-of-00001.parquet"
needs_rdkit = pytest.mark.skipif(
    importlib.util.find_spec("rdkit") is None, reason="RDKit is missing: pip install 'sgpa[graph]'"
)
needs_zinc = needs("zinc/test-*.parquet")
PLAIN = Vocabulary(("C", "O", "N", "C H1", "N H1 +", "O -"))


def names(graph, vocabulary):
    return [vocabulary.atoms[i] for i in graph.nodes.tolist()]


@needs_rdkit
@pytest.mark.parametrize(
    ("smiles", "atoms", "bonds"),
    [
        ("C", ["C"], []),
        ("CCO", ["C", "C", "O"], [0, 0]),
        ("C#N", ["C", "N"], [2]),
        ("c1ccccc1", ["C"] * 6, [0, 0, 0, 1, 1, 1]),  # aromatic: alternating single and double bonds
        ("c1cc[nH]c1", ["C"] * 4 + ["N"], [0, 0, 0, 1, 1]),  # the hydrogen is written for aromaticity only
        ("C[NH+](C)C", ["C", "C", "C", "N H1 +"], [0, 0, 0]),
        ("C[C@H](N)O", ["C", "C H1", "N", "O"], [0, 0, 0]),  # a stereo centre writes its hydrogen
        ("CC(=O)[O-]", ["C", "C", "O", "O -"], [0, 0, 1]),
        ("[H]C([H])([H])O", ["C", "O"], [0]),
        ("C.O", ["C", "O"], []),
    ],
)
def test_smiles_become_graphs_as_in_zinc(smiles, atoms, bonds):
    graph = from_smiles(smiles, PLAIN)
    assert sorted(names(graph, PLAIN)) == sorted(atoms)
    assert sorted(graph.edge_types.tolist()) == sorted(bonds * 2)
    assert graph.edges.shape == (2 * len(bonds), 2)


@needs_rdkit
def test_two_smiles_of_a_molecule_give_one_graph():
    one, two = from_smiles("OCC", PLAIN), from_smiles("C(C)O", PLAIN)
    assert torch.equal(one.nodes, two.nodes)
    assert torch.equal(one.edges, two.edges)


@needs_rdkit
@needs_zinc
def test_smiles_of_zinc_give_its_stored_graphs():
    task = zinc(data_dir=DATA)
    smiles = pq.read_table(TEST, columns=["smiles"])["smiles"].to_pylist()
    for i in range(0, 1000, 10):
        drawn = from_smiles(smiles[i], task.vocabulary)
        stored = task.splits.test.inputs[i : i + 1].trimmed()
        assert torch.equal(drawn.nodes, stored.nodes[0]), smiles[i]
        assert torch.equal(drawn.edges, stored.edges[0]), smiles[i]
        assert torch.equal(drawn.edge_types, stored.edge_types[0]), smiles[i]


@needs_rdkit
@needs_zinc
def test_stored_labels_of_zinc_equal_the_formula():
    pytest.importorskip("networkx", reason="networkx is not installed")
    from oracles.zinc_label import zinc_label

    table = pq.read_table(TEST, columns=["smiles", "y"]).to_pylist()[:300]
    errors = [abs(zinc_label(row["smiles"]) - row["y"][0]) for row in table]
    assert max(errors) < 1e-5


@needs_rdkit
@needs_zinc
def test_parquet_file_gives_graphs_targets_and_a_vocabulary():
    rows, targets, vocabulary, _ = read_molecules(TEST, target_column="y")
    assert len(rows) == len(targets) == 1000
    assert round(float(targets.mean()), 4) == 0.0124
    assert vocabulary.atoms[:3] == ("C", "N", "O")  # the most frequent first
    known = Vocabulary.read(TEST.with_name("vocab.json"))
    assert set(vocabulary.atoms) <= set(known.atoms)
    inputs = identified(rows[:5], width=4)
    assert inputs.identifiers.shape[0] == 5


@needs_rdkit
def test_csv_file_gives_graphs_targets_and_a_vocabulary(tmp_path, caplog):
    path = write(
        tmp_path / "a.csv", '\ufeffSMILES,name,Y\nCCO,"ethanol, pure",-0.5\n c1ccccc1 ,benzene,2\n\n'
    )
    rows, targets, vocabulary, _ = read_molecules(path)
    assert [len(graph) for graph in rows] == [3, 6]
    assert targets.tolist() == [-0.5, 2.0]
    assert targets.dtype == torch.float32
    assert vocabulary == Vocabulary(("C", "O"))
    other = write(tmp_path / "c.csv", "drug,pIC50\nCC,1\n")
    assert read_molecules(other, smiles_column="drug").targets.tolist() == [1.0]  # the only other column
    assert "the target is read from the only other column" in caplog.text


@needs_rdkit
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "smiles;y\nCC;1\nCO;2\n"),
        ("a.tsv", "smiles\ty\nCC\t1\nCO\t2\n"),
        ("a.csv", "smiles,y\nCC,1\n\nCO,2\n"),
    ],
)
def test_semicolons_tabs_and_blank_lines_are_read_as_for_texts(tmp_path, name, text):
    molecules = read_molecules(write(tmp_path / name, text))
    assert (molecules.smiles, molecules.targets.tolist()) == (["CC", "CO"], [1.0, 2.0])


@needs_rdkit
def test_vocabulary_is_read_back_from_its_file(tmp_path):
    path = write(tmp_path / "vocab.json", json.dumps(PLAIN.to_json()))
    assert Vocabulary.read(path) == PLAIN


@needs_rdkit
@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "smiles,y\nCC,1\nC(C,2\n",
            {},
            r"a\.csv, row 2: invalid SMILES 'C\(C': it cannot be parsed; correct",
        ),
        ("smiles,y\nCN(C)(C)(C)C,1\n", {}, r"row 1: .*Explicit valence for atom # 1 N, 5, is greater"),
        ("smiles,y\nCé,1\n", {}, "row 1: invalid SMILES"),
        ("smiles,y\nCC O,1\n", {}, "row 1: invalid SMILES 'CC O': it contains a blank"),
        ("smiles,y\n,1\n", {}, "row 1: the SMILES is missing"),
        ("smiles,y\nN->[Fe],1\n", {}, "row 1: .*bond of type DATIVE; known are SINGLE"),
        ("smiles,y\nCC,\n", {}, "row 1: the target is missing"),
        ("smiles,y\nCC,high\n", {}, "row 1: the target 'high' is not a finite number"),
        ("smiles,y\nCC,nan\n", {}, "row 1: the target 'nan' is not a finite"),
        ("smiles,y\n" + "C(,1\n" * 9, {}, "row 3: .*; and 6 more rows"),
        ("smiles,y\n", {}, "has no rows"),
        ("", {}, "has no rows"),
        ("smiles,y\nCC\n", {}, "row 1: 1 values for 2 columns"),
        ("drug,y\nCC,1\n", {}, "which column holds the smiles.*are drug, y; name one with smiles_column"),
        ("smiles,a,b\nCC,1,2\n", {}, "are smiles, a, b; name one with target_column"),
        ("smiles,y\nCC,1\n", {"target_column": "z"}, "has no column 'z'; its columns are smiles, y"),
        ("smiles,y,y\nCC,1,2\n", {}, "two columns have the same name"),
        ('smiles,y\n"CC,1\n', {}, r"cannot be read \(unexpected end of data\)"),
    ],
)
def test_bad_files_are_refused_with_the_row(tmp_path, text, options, message):
    with pytest.raises(InputError, match=message) as caught:
        read_molecules(write(tmp_path / "a.csv", text), **options)
    assert "\n" not in str(caught.value)


@needs_rdkit
def test_unknown_atoms_are_named():
    with pytest.raises(InputError, match=r"atom 'Br' does not occur in the training data \(C, O"):
        from_smiles("CCBr", PLAIN)
    with pytest.raises(InputError, match=r"atom 'Ca \+2'"):
        from_smiles("[Ca+2]", PLAIN)


def test_files_that_are_not_tables_are_refused(tmp_path):
    for name, message in (
        ("a.csv", "does not exist"),
        ("a.sdf", r"are read from \.parquet, \.csv and \.tsv"),
    ):
        with pytest.raises(InputError, match=message):
            read_molecules(tmp_path / name)
    with pytest.raises(InputError, match=r"a\.parquet cannot be read"):
        read_molecules(write(tmp_path / "a.parquet", "no parquet"))
    (tmp_path / "b.csv").write_bytes(b"smiles,y\nC\xff,1\n")
    with pytest.raises(InputError, match=r"b\.csv is not UTF-8 text \(byte 10"):
        read_molecules(tmp_path / "b.csv")


@needs_rdkit
def test_null_values_of_a_parquet_file_are_named(tmp_path):
    path = parquet(tmp_path / "a.parquet", smiles=["CC", None], y=[1.0, 2.0])
    with pytest.raises(InputError, match="row 2: the SMILES is missing"):
        read_molecules(path)
    parquet(path, smiles=["CC", "C"], y=[1.0, None])
    with pytest.raises(InputError, match="row 2: the target is missing"):
        read_molecules(path)


def test_missing_rdkit_error_names_the_package(monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(module.importlib, "import_module", missing)
    with pytest.raises(SgpaError, match=r"pip install rdkit"):
        from_smiles("CC", PLAIN)
