"""Small Transformers of every kind, and inputs for them."""

from dataclasses import replace

import torch

from sgpa.core.inputs import Graphs
from sgpa.models import (
    DotProductConfig,
    GraphConfig,
    KernelAttentionConfig,
    ModelConfig,
    PatchConfig,
    SgpaConfig,
    TokenConfig,
)

PATCHES = PatchConfig(image_size=8, channels=1, patch_size=4)
TOKENS = TokenConfig(vocabulary=11, max_tokens=7, embedding_width=12)
GRAPHS = GraphConfig(node_types=4, edge_types=3, identifier_width=3)
ATTENTIONS = {
    "sdp": DotProductConfig(),
    "kernel": KernelAttentionConfig(),
    "orthogonal": SgpaConfig(num_global=3),
    "joint": SgpaConfig(num_global=3, joint=True),
    "cheng-boots": SgpaConfig(form="cheng-boots", num_global=3),
    "standard": SgpaConfig(form="standard"),
}


def images(n=3):
    return torch.randn(n, 1, 8, 8)


def texts():
    ids = torch.randint(1, 11, (3, 6))
    ids[1, 4:] = 0
    return ids


def graphs():
    nodes = torch.tensor([[0, 1, 2], [3, 1, -1]])
    edges = torch.tensor([[[0, 1], [1, 0], [1, 2], [2, 1]], [[0, 1], [1, 0], [-1, -1], [-1, -1]]])
    types = torch.tensor([[0, 0, 1, 1], [2, 2, -1, -1]])
    return Graphs(nodes, edges, types, torch.randn(2, 3, 3))


INPUTS = {
    "images": (PATCHES, images),
    "texts": (TOKENS, texts),
    "graphs": (replace(GRAPHS, message_passing=2), graphs),
}


def small(embedding=PATCHES, attention=None, **options):
    defaults = {"depth": 2, "heads": 2, "width": 8, "outputs": 4, "dropout": 0.1}
    return ModelConfig(
        embedding=embedding, attention=attention or SgpaConfig(num_global=3), **(defaults | options)
    )
