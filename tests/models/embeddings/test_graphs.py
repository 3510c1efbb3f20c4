"""Graphs whose edges are one token instead of two."""

from dataclasses import replace

import pytest
import torch

from sgpa.core.errors import ConfigError
from sgpa.core.inputs import Graphs
from sgpa.models import GraphConfig, KernelAttentionConfig, Transformer
from sgpa.models.embeddings.graphs import GraphEmbedding, incidence, one_direction
from support.small_models import GRAPHS, graphs, small


def both(**options):
    """An embedding with two tokens an edge and one with the same weights and one token."""
    torch.manual_seed(0)
    directed = GraphEmbedding(replace(GRAPHS, **options), 8)
    undirected = GraphEmbedding(replace(GRAPHS, undirected=True, **options), 8)
    undirected.load_state_dict(directed.state_dict())
    return directed, undirected


def test_the_token_of_an_undirected_edge_is_the_mean_of_both_directions():
    for options in ({}, {"endpoint_types": True}):
        directed, undirected = both(**options)
        batch = graphs()  # edges 01 10 12 21, and 01 10
        tokens, _ = directed(batch)
        ours, padding = undirected(batch)
        assert ours.shape == (2, 5, 8)
        assert padding.tolist() == [[False] * 5, [False, False, True, False, True]]
        torch.testing.assert_close(ours[:, :3], tokens[:, :3])
        torch.testing.assert_close(ours[0, 3:], (tokens[0, [3, 5]] + tokens[0, [4, 6]]) / 2)
        torch.testing.assert_close(ours[1, 3], (tokens[1, 3] + tokens[1, 4]) / 2)


def test_the_numbers_of_nodes_do_not_matter_to_undirected_edges():
    _, undirected = both(endpoint_types=True)
    batch = graphs()[:1]
    order = torch.tensor([2, 0, 1])  # node i of the batch becomes node `new[i]`
    new = order.argsort()
    other = Graphs(batch.nodes[:, order], new[batch.edges], batch.edge_types, batch.identifiers[:, order])
    ours, theirs = undirected(batch)[0][0, 3:], undirected(other)[0][0, 3:]
    torch.testing.assert_close(ours.sum(0), theirs.sum(0))
    torch.testing.assert_close(ours.square().sum(), theirs.square().sum())


def test_one_direction_keeps_half_of_the_edges():
    halved = one_direction(graphs())
    assert halved.edges.tolist() == [[[0, 1], [1, 2]], [[0, 1], [-1, -1]]]
    assert halved.edge_types.tolist() == [[0, 1], [2, -1]]


def test_graphs_know_whether_both_directions_are_listed():
    batch = graphs()
    assert batch.undirected
    assert not replace(batch, edges=batch.edges[:, :3], edge_types=batch.edge_types[:, :3]).undirected
    other_type = batch.edge_types.clone()
    other_type[0, 0] = 2
    assert not replace(batch, edge_types=other_type).undirected
    loop = batch.edges.clone()
    loop[1, :2] = 0
    assert not replace(batch, edges=loop).undirected
    assert Graphs(batch.nodes, batch.edges[:, :0], batch.edge_types[:, :0], batch.identifiers).undirected


def test_two_rounds_of_message_passing_by_hand():
    """Loops over atoms and bonds give the same tokens, with two tokens a bond and with one."""
    batch = graphs()
    for undirected in (False, True):
        config = replace(GRAPHS, undirected=undirected)
        torch.manual_seed(0)
        layer = GraphEmbedding(replace(config, message_passing=2), 8)
        plain = GraphEmbedding(config, 8)
        plain.load_state_dict(layer.state_dict(), strict=False)
        tokens, padding = layer(batch)
        before, same_padding = plain(batch)
        assert torch.equal(padding, same_padding)
        edges = (one_direction(batch) if undirected else batch).edges
        for b, ends in enumerate(edges.tolist()):
            nodes = list(before[b, :3].split(1))
            bonds = list(before[b, 3:].split(1))
            for mlp in layer.rounds:
                messages = [bond + nodes[u] + nodes[w] for bond, (u, w) in zip(bonds, ends, strict=True)]
                nodes = [
                    x + mlp(x + sum(m for m, pair in zip(messages, ends, strict=True) if v in pair))
                    for v, x in enumerate(nodes)
                ]
            real = ~padding[b]
            torch.testing.assert_close(tokens[b][real], torch.cat([*nodes, *bonds])[real])


def test_message_passing_depends_on_neither_padding_nor_node_numbers():
    config = replace(GRAPHS, message_passing=2, endpoint_types=True, undirected=True)
    torch.manual_seed(0)
    model = Transformer(small(config, KernelAttentionConfig())).eval()
    batch = graphs()
    together = model.predict(batch).probabilities
    for i in range(len(batch)):
        alone = model.predict(batch[i : i + 1].trimmed()).probabilities
        torch.testing.assert_close(alone[0], together[i], rtol=1e-4, atol=1e-5)
    order = torch.tensor([2, 0, 1])
    one, new = batch[:1], order.argsort()
    other = Graphs(one.nodes[:, order], new[one.edges], one.edge_types, one.identifiers[:, order])
    torch.testing.assert_close(model.predict(other).probabilities[0], together[0], rtol=1e-4, atol=1e-5)


def test_neighbours_reach_a_token_in_as_many_rounds_as_they_are_far():
    """A chain 0 - 1 - 2: the type of node 2 reaches the token of node 0 in the second round."""
    chain = graphs()[:1]
    other = replace(chain, nodes=chain.nodes.clone().index_fill_(1, torch.tensor([2]), 0))
    assert not torch.equal(chain.nodes, other.nodes)
    for rounds, reached in ((0, [False, False, True]), (1, [False, True, True]), (2, [True, True, True])):
        torch.manual_seed(0)
        layer = GraphEmbedding(replace(GRAPHS, message_passing=rounds), 8)
        changed = (layer(chain)[0] - layer(other)[0]).abs().sum(-1)[0, :3] > 1e-6
        assert changed.tolist() == reached


def test_padding_edges_end_nowhere():
    edges = torch.tensor([[[0, 2], [1, 0], [-1, -1]]])
    assert incidence(edges, 3).tolist() == [[[1, 0, 1], [1, 1, 0], [0, 0, 0]]]


@pytest.mark.parametrize("rounds", [-1, 65])
def test_rounds_out_of_range_are_refused(rounds):
    with pytest.raises(ConfigError, match=r"message_passing=.* \(allowed: 0 to 64\)"):
        GraphConfig(node_types=2, edge_types=1, message_passing=rounds)
