import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from sgpa.core.errors import ConfigError, InputError
from sgpa.data.graphs import identifiers
from sgpa.data.graphs.batch import dataset, identified, pack
from sgpa.data.graphs.graph import Graph, adjacency, complement
from sgpa.data.graphs.identifiers import flip_signs, laplacian_identifiers, return_chances
from sgpa.data.graphs.vocabulary import Vocabulary
from sgpa.data.graphs.zinc import zinc, zinc_complement
from sgpa.models import GraphConfig, KernelAttentionConfig, ModelConfig, Transformer
from sgpa.models.embeddings.graphs import GraphEmbedding
from support.paths import DATA, needs

needs_zinc = needs("zinc/vocab.json")


def graph(nodes, pairs, types=None):
    """An undirected graph from its pairs."""
    both = [*pairs, *((v, u) for u, v in pairs)]
    types = [0] * len(pairs) if types is None else types
    edges = torch.tensor(both, dtype=torch.int64).reshape(-1, 2)
    return Graph(torch.tensor(nodes), edges, torch.tensor([*types, *types], dtype=torch.int64))


# six nodes, no symmetry: a triangle with tails, so that all eigenvalues differ
ODD = graph([0, 1, 2, 0, 3, 1], [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (1, 5)], [0, 1, 0, 2, 0, 1])
PROPANE = graph([0, 0, 0], [(0, 1), (1, 2)])
RING = graph([0] * 6, [(i, (i + 1) % 6) for i in range(6)], [1, 0] * 3)
STAR = graph([0] * 5, [(0, i) for i in range(1, 5)])
ALONE = graph([2], [])
SMALL = [ODD, PROPANE, RING, STAR, ALONE]


def moved(g, order):
    """The same graph with node `order[i]` in place i."""
    return Graph(g.nodes[order], order.argsort()[g.edges], g.edge_types)


def pairs(g):
    return set(map(tuple, g.edges.tolist()))


def laplacian(g):
    A = adjacency(g)
    scale = A.sum(-1).clamp_min(1).rsqrt().diag()
    return torch.eye(len(g), dtype=A.dtype) - scale @ A @ scale


def model(**sizes):
    torch.manual_seed(0)
    embedding = GraphConfig(**({"node_types": 4, "edge_types": 3, "identifier_width": 6} | sizes))
    options = {"depth": 2, "heads": 2, "width": 8, "outputs": 1, "likelihood": "laplace"}
    config = ModelConfig(embedding=embedding, attention=KernelAttentionConfig(), **options)
    return Transformer(config).double().eval()


def f(net, batch):
    with torch.no_grad():
        return net(replace(batch, identifiers=batch.identifiers.double())).f


@pytest.mark.parametrize("g", SMALL)
def test_laplacian_identifiers_are_ascending_orthonormal_eigenvectors(g):
    P = laplacian_identifiers(g, 8).double()
    n, L = len(g), laplacian(g)
    assert P.shape == (n, 8)
    assert (P[:, n:] == 0).all()
    assert torch.allclose(P[:, :n].T @ P[:, :n], torch.eye(n).double(), atol=1e-6)
    assert torch.allclose(L @ P[:, :n], P[:, :n] * torch.linalg.eigvalsh(L), atol=1e-6)
    assert torch.allclose(laplacian_identifiers(g, 2), P[:, :2].float())


def test_trivial_eigenvector_is_the_square_root_of_the_degrees():
    degrees = adjacency(ODD).sum(-1)
    assert torch.allclose(laplacian_identifiers(ODD, 3)[:, 0], (degrees / degrees.sum()).sqrt().float())


@pytest.mark.parametrize("g", [RING, STAR, complement(RING), graph([0] * 4, [(0, 1), (2, 3)])])
def test_identifiers_do_not_depend_on_the_basis_of_an_eigenspace(g):
    values, U = np.linalg.eigh(laplacian(g).numpy())
    assert (np.diff(values) < 1e-8).any()
    expected, rng = laplacian_identifiers(g, len(g)).numpy(), np.random.default_rng(0)
    for _ in range(5):  # any basis of the eigenspaces that another solver might return
        turned = U.copy()
        for value in np.unique(values.round(6)):
            space = np.flatnonzero(abs(values - value) < 1e-6)
            turned[:, space] @= np.linalg.qr(rng.normal(size=(len(space), len(space))))[0]
        assert np.allclose(identifiers._settled(values[None], turned[None], len(g))[0], expected, atol=1e-6)


def test_identifiers_do_not_depend_on_other_graphs_of_the_batch():
    together = identified(SMALL, width=4)
    for i, g in enumerate(SMALL):
        assert torch.equal(together.identifiers[i, : len(g)], laplacian_identifiers(g, 4))
        assert (together.identifiers[i, len(g) :] == 0).all()


@pytest.mark.parametrize(("n", "width"), [(5, 5), (5, 9), (9, 5), (1, 3)])
def test_orthogonal_identifiers_are_rows_of_an_orthogonal_matrix(n, width):
    P = identifiers.orthogonal_identifiers(n, width, torch.Generator().manual_seed(1))
    assert P.shape == (n, width)
    assert torch.allclose(P.norm(dim=-1), torch.ones(n), atol=1e-6)
    assert torch.equal(P, identifiers.orthogonal_identifiers(n, width, torch.Generator().manual_seed(1)))
    uncut = identifiers.orthogonal_identifiers(n, max(n, width), torch.Generator().manual_seed(1))
    assert torch.allclose(uncut @ uncut.T, torch.eye(n), atol=1e-5)
    assert torch.allclose(torch.nn.functional.normalize(uncut[:, :width], dim=-1), P, atol=1e-6)


def test_redrawn_identifiers_are_orthonormal_for_every_graph_of_a_padded_batch():
    batch = identified(SMALL, "orthogonal", 8)
    new = identifiers.redraw(batch, torch.Generator().manual_seed(3))
    for i, g in enumerate(SMALL):
        P = new.identifiers[i]
        assert torch.allclose(P[: len(g)] @ P[: len(g)].T, torch.eye(len(g)), atol=1e-5)
        assert (P[len(g) :] == 0).all()
    assert not torch.equal(new.identifiers, batch.identifiers)


def test_random_orthogonal_rows_are_centred():
    # QR alone fixes signs in a way that is not uniform; the mean over many draws shows it
    Q = identifiers._random_rows(torch.ones(4000, 3, dtype=torch.bool), 3, torch.Generator().manual_seed(0))
    assert (Q.mean(0).abs() < 5 * (1 / 3 / 4000) ** 0.5).all()


def test_flips_change_signs_only_and_repeat_by_seed():
    batch = identified([ODD] * 50, width=6)
    flipped = flip_signs(batch, torch.Generator().manual_seed(5))
    assert torch.equal(flipped.identifiers.abs(), batch.identifiers.abs())
    signs = (flipped.identifiers * batch.identifiers).sum(1)  # one inner product per eigenvector: 1 or -1
    assert torch.allclose(signs.abs(), torch.ones_like(signs), atol=1e-5)
    assert 0.4 < (signs > 0).float().mean() < 0.6
    assert (signs[0] - signs[1:]).abs().max() > 1  # every graph has its own
    assert torch.equal(flip_signs(batch, torch.Generator().manual_seed(5)).identifiers, flipped.identifiers)
    assert torch.equal(flipped.edges, batch.edges)


def test_return_chances_by_hand():
    # from the end of propane a walk is at the other carbon, then half of the time back
    chances = return_chances(PROPANE, 4)
    ends, middle = [0, 0.5, 0, 0.5], [0, 1, 0, 1]
    assert torch.allclose(chances, torch.tensor([ends, middle, ends]))
    ring = return_chances(RING, 6)
    assert torch.allclose(ring, ring[:1].expand(6, -1))  # all atoms of a ring are equal
    assert ring[0, :6].tolist() == pytest.approx([0, 1 / 2, 0, 3 / 8, 0, 20 / 64 + 2 / 64])  # or once around
    assert (return_chances(graph([0], []), 3) == 0).all()
    assert identified([PROPANE], "walks", 1).identifiers.shape == (1, 3, 1)  # an eigenvector, no walk


def test_walk_identifiers_are_eigenvectors_and_return_chances():
    batch = identified([ODD] * 20, "walks", 7)
    assert torch.equal(batch.identifiers[0, :, :4], laplacian_identifiers(ODD, 4))
    assert torch.equal(batch.identifiers[0, :, 4:], return_chances(ODD, 3))
    flipped = identifiers.flip_walks(batch, torch.Generator().manual_seed(5)).identifiers
    assert torch.equal(flipped[..., 4:], batch.identifiers[..., 4:])
    assert torch.equal(flipped[..., :4].abs(), batch.identifiers[..., :4].abs())
    assert not torch.equal(flipped[..., :4], batch.identifiers[..., :4])
    order = torch.tensor([4, 2, 0, 5, 1, 3])
    assert torch.allclose(return_chances(moved(ODD, order), 5), return_chances(ODD, 5)[order])


def test_endpoint_types_are_added_to_edges():
    config = GraphConfig(node_types=5, edge_types=3, identifier_width=6, endpoint_types=True)
    torch.manual_seed(0)
    layer = GraphEmbedding(config, 8)
    batch = identified([ODD], width=6)
    tokens, n = layer(batch)[0][0], len(ODD)
    layer.ends, table = None, layer.ends.weight
    plain = layer(batch)[0][0]
    assert torch.equal(tokens[:n], plain[:n])
    for i, (u, v) in enumerate(ODD.edges.tolist()):
        known = table[ODD.nodes[u]] + table[config.node_types + ODD.nodes[v]]
        assert torch.allclose(tokens[n + i], plain[n + i] + known, atol=1e-6)


def test_predictions_do_not_depend_on_node_numbers():
    net, order = model(), torch.tensor([4, 2, 0, 5, 1, 3])
    P = laplacian_identifiers(ODD, 6)
    before = f(net, pack([ODD], [P]))
    assert torch.allclose(before, f(net, pack([moved(ODD, order)], [P[order]])))
    assert not torch.allclose(before, f(net, pack([moved(ODD, order)], [P])))


def test_identifiers_of_renumbered_nodes_agree_up_to_sign():
    net, order = model(), torch.tensor([4, 2, 0, 5, 1, 3])
    P, Q = laplacian_identifiers(ODD, 6), laplacian_identifiers(moved(ODD, order), 6)
    signs = (P[order] * Q).sum(0)
    assert torch.allclose(signs.abs(), torch.ones(6), atol=1e-5)  # all eigenvalues of ODD are simple
    after = f(net, pack([moved(ODD, order)], [Q * signs.sign()]))
    assert torch.allclose(f(net, pack([ODD], [P])), after, atol=1e-5)


def test_padding_does_not_change_predictions():
    net, together = model(), [*SMALL, complement(PROPANE)]
    padded = f(net, identified(together, width=6))
    for i, g in enumerate(together):
        assert torch.allclose(padded[i : i + 1], f(net, identified([g], width=6)))


def test_complements_by_hand():
    c = complement(PROPANE)
    assert pairs(c) == {(0, 2), (2, 0)}
    assert c.edge_types.tolist() == [0, 0]
    c = complement(RING, edge_type=2)
    assert pairs(c) == {(i, (i + k) % 6) for i in range(6) for k in (2, 3, 4)}
    assert c.edge_types.tolist() == [2] * 18


@pytest.mark.parametrize("g", SMALL)
def test_complement_of_the_complement_is_the_graph(g):
    assert pairs(complement(complement(g))) == pairs(g)
    assert not pairs(complement(g)) & pairs(g)
    assert len(complement(g).edges) + len(g.edges) == len(g) * (len(g) - 1)


def test_packed_graphs_are_padded_at_the_end_and_trimmed():
    batch = identified([PROPANE, RING], width=4)
    assert batch.nodes.tolist()[0] == [0, 0, 0, -1, -1, -1]
    assert batch.edge_types[0].tolist() == [0] * 4 + [-1] * 8
    assert (batch.edges[0, 4:] == -1).all()
    alone = batch[:1].trimmed()
    assert torch.equal(alone.edges[0], PROPANE.edges)
    assert alone.identifiers.shape == (1, 3, 4)


def test_batches_hold_graphs_of_similar_length():
    rows = [graph([0] * n, [(i, i + 1) for i in range(n - 1)]) for n in (2, 9) for _ in range(100)]
    data = dataset(rows, torch.zeros(200), width=3, augment=True)
    assert sorted(set(data.lengths.tolist())) == [2 + 2, 9 + 16]
    assert data.augment is flip_signs
    for batch in data.batches(10, seed=0):
        assert len((batch.inputs.nodes >= 0).sum(1).unique()) == 1
    assert dataset(rows, torch.zeros(200), "orthogonal", augment=True).augment is identifiers.redraw
    assert dataset(rows, torch.zeros(200)).augment is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: graph([], []), "at least one node"),
        (lambda: graph([0, 0], [(0, 2)]), r"different nodes of 0\.\.1"),
        (lambda: graph([0, 0], [(0, 0)]), "two different nodes"),
        (lambda: graph([0, 0], [(0, -1)]), r"different nodes of 0\.\.1"),
        (lambda: Graph(torch.zeros(2), torch.tensor([[0, 1]]), torch.tensor([0])), "both directions"),
        (lambda: Graph(torch.zeros(2), torch.zeros(2, 3), torch.zeros(3)), r"expected \[3, 2\]"),
        (lambda: pack([], []), "0 graphs"),
        (lambda: pack([ODD], []), "1 graphs and 0 sets"),
        (lambda: pack([ODD], [torch.zeros(3, 4)]), r"6 nodes has identifiers of shape \[3, 4\]"),
        (lambda: identified([ODD], "rdf", 0), "identifiers='rdf'.*laplacian, orthogonal.*width=0"),
        (lambda: flip_signs(torch.zeros(3), torch.Generator()), "expected Graphs, got Tensor"),
        (lambda: dataset([ODD], torch.zeros(2)), "1 inputs but 2 targets"),
        (lambda: Vocabulary.read(Path("nowhere.json")), "nowhere.json: no vocabulary"),
        (lambda: zinc(data_dir=Path("nowhere")), "zinc: no train files"),
    ],
)
def test_bad_inputs_are_refused_in_one_line(make, message):
    with pytest.raises((InputError, ConfigError), match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_model_refuses_edges_with_negative_ends():
    batch = identified([ODD], width=6)
    batch.edges[0, 2, 1] = -3
    with pytest.raises(InputError, match="an edge ends at a negative node number"):
        f(model(), batch)


def stored(folder, atom=0, bond=1, columns=("edge_index", "edge_attr", "node_feat", "y")):
    """A tiny data set in ZINC's layout: the same two atoms in every split."""
    values = ([[0, 1], [1, 0]], [[bond], [bond]], [[atom], [0]], [0.5])
    row = dict(zip(("edge_index", "edge_attr", "node_feat", "y"), values, strict=True))
    (folder / "zinc").mkdir(parents=True)
    (folder / "zinc" / "vocab.json").write_text(
        json.dumps(Vocabulary(("C", "O")).to_json()), encoding="utf-8"
    )
    for split in ("train", "validation", "test"):
        table = pa.table({name: [row[name]] * 3 for name in columns})
        pq.write_table(table, folder / "zinc" / f"{split}-00000-of-00001.parquet")
    return folder


def test_zinc_layout_is_read_and_damage_is_named(tmp_path):
    task = zinc(data_dir=stored(tmp_path / "good"), width=3)
    assert task.splits.train.inputs.nodes.tolist() == [[0, 0]] * 3
    assert task.splits.test.inputs.edge_types.tolist() == [[0, 0]] * 3  # stored 1 is a single bond
    assert task.splits.test.targets.tolist() == [0.5] * 3
    assert task.vocabulary == Vocabulary(("C", "O"))
    with pytest.raises(InputError, match=r"train-00000.*atom types are 0\.\.2, vocab.json has 0\.\.1"):
        zinc(data_dir=stored(tmp_path / "atom", atom=2))
    with pytest.raises(InputError, match=r"bond types are -1\.\.-1, vocab.json"):
        zinc(data_dir=stored(tmp_path / "bond", bond=0))
    with pytest.raises(InputError, match="cannot be read as graphs"):
        zinc(data_dir=stored(tmp_path / "column", columns=("y", "node_feat")))


@pytest.fixture(scope="module")
def real_zinc():
    return zinc(data_dir=DATA)


@needs_zinc
def test_zinc_sizes_targets_and_types(real_zinc):
    parts = [real_zinc.splits.train, real_zinc.splits.validation, real_zinc.splits.test]
    assert [len(part) for part in parts] == [10_000, 1_000, 1_000]
    assert [round(float(part.targets.mean()), 4) for part in parts] == [0.0179, 0.0315, 0.0124]
    assert real_zinc.sizes == {"node_types": 28, "edge_types": 3, "identifier_width": 16, "max_tokens": 1287}
    assert "not on the benchmark's own 10,000" in real_zinc.note
    assert [part.augment for part in parts] == [flip_signs, None, None]
    for part in parts:
        assert part.inputs.nodes.max() < 28
        assert part.inputs.edge_types.unique().tolist() == [-1, 0, 1, 2]
        assert part.lengths.max() <= 121


@needs_zinc
def test_zinc_batches_have_similar_lengths(real_zinc):
    batch = next(real_zinc.splits.train.batches(64, seed=0))
    lengths = (batch.inputs.nodes >= 0).sum(1) + (batch.inputs.edge_types >= 0).sum(1)
    assert lengths.max() - lengths.min() < 30
    assert f(model(**real_zinc.sizes), batch.inputs).shape == (64, 1)


@needs_zinc
def test_zinc_complements(real_zinc):
    c, test = zinc_complement(data_dir=DATA), real_zinc.splits.test
    tokens = (c.nodes >= 0).sum(1) + (c.edge_types >= 0).sum(1)
    assert torch.equal(c.nodes, test.inputs.nodes)
    assert torch.equal(tokens + test.lengths - (c.nodes >= 0).sum(1), (c.nodes >= 0).sum(1) ** 2)
    assert int(tokens.max()) == 1285 <= real_zinc.max_tokens
    assert c.edge_types.unique().tolist() == [-1, 0]
    assert sum(x.nbytes for x in (c.nodes, c.edges, c.edge_types, c.identifiers)) < 40e6
