"""Inputs that are like none of a user's data, made to measure how often they are trusted."""

from dataclasses import replace

import torch
from torch import Tensor

from sgpa.core.inputs import Graphs, Inputs


def plain_colours(like: Tensor, count: int) -> Tensor:
    """Images of one random colour each, [count, C, h, w] uint8."""
    colours = torch.randint(0, 256, (count, like.shape[1], 1, 1), generator=torch.Generator().manual_seed(0))
    return colours.expand(count, *like.shape[1:]).to(torch.uint8).contiguous()


def random_pixels(like: Tensor, count: int) -> Tensor:
    """Images of independent uniform pixels, [count, C, h, w] uint8."""
    shape = (count, *like.shape[1:])
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(1)).to(torch.uint8)


def random_tokens(like: Tensor, lengths: Tensor, vocabulary: int, first: int) -> Tensor:
    """Rows as long as others [N, T] whose tokens are drawn from `first` to the end of the vocabulary."""
    drawn = torch.randint(first, vocabulary, like.shape, generator=torch.Generator().manual_seed(0))
    inside = torch.arange(like.shape[1]) < lengths.unsqueeze(1)
    ends = (torch.arange(like.shape[1]) == 0) | (torch.arange(like.shape[1]) == lengths.unsqueeze(1) - 1)
    return torch.where(inside & ~ends, drawn, like)  # the marks of start and end stay


def random_atoms(graphs: Inputs, types: int) -> Graphs:
    """The same graphs with atoms of random types."""
    assert isinstance(graphs, Graphs)
    drawn = torch.randint(0, types, graphs.nodes.shape, generator=torch.Generator().manual_seed(0))
    return replace(graphs, nodes=torch.where(graphs.nodes < 0, graphs.nodes, drawn))
