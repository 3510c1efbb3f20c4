"""Graphs whose edges are one token instead of two."""

from dataclasses import replace

import torch

from sgpa.core.inputs import Graphs
from sgpa.models.embeddings.graphs import GraphEmbedding, one_direction
from support.small_models import GRAPHS, graphs


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
