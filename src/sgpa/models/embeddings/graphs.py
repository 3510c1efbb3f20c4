"""Graphs as sequences: every node and every edge is a token (after Kim et al. 2022)."""

import torch
from torch import Tensor, nn

from sgpa.core.errors import InputError
from sgpa.core.inputs import Graphs
from sgpa.core.noise import sharded
from sgpa.core.precision import recording
from sgpa.models.config import GraphConfig


def one_direction(graphs: Graphs) -> Graphs:
    """The edges (u, v) with u < v, where both directions are listed: [B, M, 2] -> [B, M / 2, 2]."""
    kept = (graphs.edges[..., 0] < graphs.edges[..., 1]) & (graphs.edge_types >= 0)  # [B, M]
    order = (~kept).to(torch.uint8).argsort(dim=1, stable=True)[:, : (kept.shape[1] + 1) // 2]  # those first
    kept = kept.gather(1, order)
    edges = graphs.edges.gather(1, order.unsqueeze(-1).expand(-1, -1, 2))
    return Graphs(
        graphs.nodes,
        edges.masked_fill(~kept.unsqueeze(-1), -1),
        graphs.edge_types.gather(1, order).masked_fill(~kept, -1),
        graphs.identifiers,
    )


def incidence(edges: Tensor, nodes: int) -> Tensor:
    """C [B, M, N], one where an edge [B, M, 2] ends at a node; edges that are padding (-1) end nowhere.

    >>> incidence(torch.tensor([[[0, 2], [-1, -1]]]), 3).tolist()
    [[[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]]
    """
    ends = edges.unsqueeze(-1) == torch.arange(nodes, device=edges.device)  # [B, M, 2, N]
    return ends.any(2).float()


def _mlp(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))


class GraphEmbedding(nn.Module):
    """Node v: e(x_v) + W [P_v; P_v] + t_node. Edge (u, v): e(a_uv) + W [P_u; P_v] + t_edge.

    The orthonormal identifiers P encode which edge touches which node; the type vectors t distinguish nodes
    and edges. With `endpoint_types` an edge also has e_1(x_u) + e_2(x_v). Tokens: N nodes, then M edges,
    [B, N + M, E]. With `undirected` the tokens of (u, v) and (v, u) are replaced by their mean.

    In a round of `message_passing`, x_v <- x_v + MLP(x_v + the sum of e_uv + x_u + x_v over its edges), as in
    a graph isomorphism network (Xu et al. 2019) with a residual connection.
    """

    def __init__(self, config: GraphConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.node_types = nn.Embedding(config.node_types, width)
        self.edge_types = nn.Embedding(config.edge_types, width)
        self.identify = nn.Linear(2 * config.identifier_width, width, bias=False)
        self.kinds = nn.Parameter(torch.randn(2, width) * width**-0.5)  # t_node, t_edge
        self.ends = (
            nn.Embedding(2 * config.node_types, width) if config.endpoint_types else None
        )  # e_1, then e_2
        self.rounds = nn.ModuleList(_mlp(width) for _ in range(config.message_passing))

    def forward(self, graphs: Graphs) -> tuple[Tensor, Tensor]:
        """Tokens and the padding mask (True at padding)."""
        self.check(graphs)
        graphs = self.trimmed(graphs)
        if self.config.undirected:
            graphs = one_direction(graphs)
        P = graphs.identifiers  # [B, N, P]
        ends = graphs.edges.clamp_min(0).flatten(1).unsqueeze(-1).expand(-1, -1, P.shape[-1])
        P_uv = P.gather(1, ends).unflatten(1, (-1, 2)).flatten(2)  # [P_u; P_v]    [B, M, 2 P]
        if self.config.undirected:
            P_uv = (P_uv + P_uv.roll(P.shape[-1], -1)) / 2
        # one call of the map for all tokens: where its weights are random, nodes and edges see the same
        identity = self.identify(torch.cat([torch.cat([P, P], -1), P_uv], 1))  # [B, N + M, E]
        nodes = self.node_types(graphs.nodes.clamp_min(0)) + self.kinds[0]
        edges = self.edge_types(graphs.edge_types.clamp_min(0)) + self.kinds[1]
        if self.ends is not None:
            joined = graphs.nodes.clamp_min(0).gather(1, graphs.edges.clamp_min(0).flatten(1))  # [B, 2 M]
            x_u, x_v = joined.unflatten(1, (-1, 2)).unbind(2)  # [B, M] each
            ends_uv = self.ends(x_u) + self.ends(x_v + self.config.node_types)
            if self.config.undirected:
                ends_uv = (ends_uv + self.ends(x_v) + self.ends(x_u + self.config.node_types)) / 2
            edges = edges + ends_uv
        tokens = torch.cat([nodes, edges], 1) + identity
        if self.rounds:
            tokens = self.pass_messages(tokens, incidence(graphs.edges, graphs.nodes.shape[1]))
        padding = torch.cat([graphs.nodes < 0, graphs.edge_types < 0], 1)
        return tokens, padding

    def pass_messages(self, tokens: Tensor, C: Tensor) -> Tensor:
        """Tokens [B, N + M, E] after all rounds, for the incidence C [B, M, N]."""
        nodes, edges = tokens.split([C.shape[2], C.shape[1]], 1)
        C = C.to(tokens.dtype)
        for mlp in self.rounds:
            nodes = nodes + mlp(nodes + C.mT @ (edges + C @ nodes))
        return torch.cat([nodes, edges], 1)

    def trimmed(self, graphs: Graphs, multiple: int = 1) -> Graphs:
        """The graphs without the columns that are padding in all of them, where shapes may change."""
        return graphs if recording(graphs.nodes) or sharded() else graphs.trimmed(multiple)

    def check(self, graphs: Graphs) -> None:
        """Raise an error of one line for graphs that cannot be embedded."""
        if not isinstance(graphs, Graphs):
            raise InputError(f"expected Graphs, got {type(graphs).__name__}")
        c, width = self.config, graphs.identifiers.shape[-1]
        if width != c.identifier_width:
            raise InputError(f"node identifiers have width {width}, the model expects {c.identifier_width}")
        if recording(graphs.nodes):
            return
        for what, types, allowed in (
            ("node", graphs.nodes, c.node_types),
            ("edge", graphs.edge_types, c.edge_types),
        ):
            if types.numel() and types.max() >= allowed:
                raise InputError(f"{what} type {int(types.max())} is outside 0..{allowed - 1}")
        if graphs.edges.numel() and graphs.edges.max() >= graphs.nodes.shape[1]:
            raise InputError(f"an edge ends at node {int(graphs.edges.max())} of {graphs.nodes.shape[1]}")
        if ((graphs.edges < 0).any(-1) & (graphs.edge_types >= 0)).any():
            raise InputError("an edge ends at a negative node number; nodes are numbered from 0")
        if graphs.edges.numel():
            ends = graphs.nodes.gather(1, graphs.edges.clamp_min(0).flatten(1)).unflatten(
                1, (-1, 2)
            )  # [B, M, 2]
            if ((ends < 0).any(-1) & (graphs.edge_types >= 0)).any():
                raise InputError("an edge ends at a node that is padding (type -1)")
