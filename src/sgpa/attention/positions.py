"""Position-aware keys: a kernel that compares where tokens are as well as what they contain.

A kernel of tokens alone treats two patches far apart as it treats neighbours. With positions
k = x W / ℓ + p, where p is learned for every cell of the grid and every head. Initially p is the cell's
coordinates divided by the head's locality: under an RBF kernel a head starts out attending around each token,
with weights exp(-½ (distance / locality)²), and may change that in training.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from sgpa.core.errors import check_fields


def grid_positions(grid: Sequence[int], locality: Sequence[float], width: int) -> Tensor:
    """Initial positions of the cells of a grid, in row-major order.

    Args:
        grid: cells along each side: one number for a text, two for an image.
        locality: for each head, the distance in cells over which it attends at first.
        width: D, the width of a head.

    Returns:
        Positions [T, H, D], in units of the kernel's length-scales.

    >>> grid_positions((2, 3), (1.0, 2.0), 4)[-1]
    tensor([[0.5000, 1.0000, 0.0000, 0.0000],
            [0.2500, 0.5000, 0.0000, 0.0000]])
    """
    positive = len(locality) > 0 and min(locality) > 0
    check_fields(
        "positions",
        [
            ("grid", tuple(grid), 0 < len(grid) <= width, f"1 to {width} sides (width of a head)"),
            ("locality", tuple(locality), positive, "a positive number for every head"),
        ],
    )
    sides = [torch.arange(n) - (n - 1) / 2 for n in grid]
    cells = torch.stack(torch.meshgrid(*sides, indexing="ij"), -1).flatten(0, -2)  # [T, sides]
    positions = torch.zeros(len(cells), len(locality), width)  # [T, H, D]
    positions[..., : len(grid)] = cells.unsqueeze(1) / torch.tensor(locality).view(-1, 1)
    return positions
