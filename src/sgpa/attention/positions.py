"""Where tokens are: keys that carry their place, so that a kernel may tell near from far.

A kernel of tokens alone compares what they show; two patches far apart attend to each other as neighbours do.
With places, k = x W / ℓ + p for a learned p of every cell and head: the points of the GP are pairs of a token
and its cell. To begin with p is the cell's coordinates divided by the head's reach: under an RBF kernel a
head starts out attending around every token, exp(-½ (distance / reach)²), and may unlearn it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from sgpa.core.errors import check_fields


def places(grid: Sequence[int], reach: Sequence[float], width: int) -> Tensor:
    """Places [T, H, D] of the cells of a grid, in row-major order, for heads of this reach and width.

    >>> places((2, 3), (1.0, 2.0), 4)[-1]
    tensor([[0.5000, 1.0000, 0.0000, 0.0000],
            [0.2500, 0.5000, 0.0000, 0.0000]])
    """
    check_fields(
        "places",
        [
            ("grid", tuple(grid), 0 < len(grid) <= width, f"1 to {width} sides (width of a head)"),
            ("reach", tuple(reach), len(reach) > 0 and min(reach) > 0, "a positive number for every head"),
        ],
    )
    sides = [torch.arange(n) - (n - 1) / 2 for n in grid]
    cells = torch.stack(torch.meshgrid(*sides, indexing="ij"), -1).flatten(0, -2)  # [T, sides]
    found = torch.zeros(len(cells), len(reach), width)
    found[..., : len(grid)] = cells.unsqueeze(1) / torch.tensor(reach).view(-1, 1)
    return found
