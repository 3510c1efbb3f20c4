"""Spatter: drops of water (severities 1 to 3) or mud (4 and 5) on the lens.

The water's relief is a chain of OpenCV's 8-bit operations; each function here is one of them and rounds as
OpenCV does. Layers are [n, h, w].
"""

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, pad

from sgpa.data.corruptions import filters
from sgpa.data.corruptions.draws import Draws

WATER = (175 / 255, 238 / 255, 238 / 255)  # pale turquoise
MUD = (63 / 255, 42 / 255, 20 / 255)
LOW, HIGH = 50, 150  # Canny's thresholds
FARTHEST = 20.0  # distances are cut off here
EMBOSS = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))
# OpenCV's chamfer lengths of a step to the side, a diagonal one and a knight's move, in units of 2^-16.
STEPS = {(0, 1): 65536, (1, 1): 91750, (1, 2): 143976}


def spatter(
    x: Tensor,
    draws: Draws,
    mean: float,
    std: float,
    sigma: float,
    threshold: float,
    strength: float,
    mud: int,
) -> Tensor:
    """Thresholded smooth noise; as mud it covers the image, as water it adds a relief of light."""
    h = x.shape[-1]
    liquid = filters.gaussian(mean + std * draws.normal(h, h), sigma)  # [n, h, h]
    colour = x.new_tensor(MUD if mud else WATER).view(3, 1, 1)
    if mud:
        m = filters.gaussian((liquid > threshold).to(x.dtype), strength)
        m = m.masked_fill(m < 0.8, 0).unsqueeze(1)  # [n, 1, h, h]
        return x * (1 - m) + colour * m
    levels = (
        liquid.masked_fill(liquid < threshold, 0) * 255
    ).int() & 255  # 8 bits: values above 255 wrap around
    m = levels * relief(levels)
    # Divided by the maximum; where there is no drop at all, nothing is added.
    m = m / m.amax((1, 2), keepdim=True).clamp_min(1) * strength
    return x + colour * m.unsqueeze(1).to(x.dtype)


def relief(levels: Tensor) -> Tensor:
    """Light on drops of 8-bit height, 0 to 255, from the distance to their edges."""
    distance = chamfer(canny(levels)).clamp(max=FARTHEST)
    # the mean is a multiple of 1 / (9 x 2^16); the addition undoes rounding errors before it is cut to 8 bits
    even = equalised(filters.box3(distance.double()).add(1e-9).floor().long())
    e = pad(even.unsqueeze(1).double(), (1, 1, 1, 1), mode="reflect").squeeze(1)  # [n, h + 2, h + 2]
    lit = sum(
        (EMBOSS[i][j] * _window(e, i, j) for i in range(3) for j in range(3)), torch.zeros_like(e[:, 2:, 2:])
    )
    return filters.box3(lit.clamp(0, 255)).round()


def canny(levels: Tensor) -> Tensor:
    """Edges of 8-bit layers, bool: thin ridges of |dx| + |dy| above HIGH, and above LOW if joined to one."""
    p = pad(levels.unsqueeze(1).double(), (1, 1, 1, 1), mode="replicate").squeeze(1).int()
    across = _window(p, 0, 2) + 2 * _window(p, 1, 2) + _window(p, 2, 2)
    across -= _window(p, 0, 0) + 2 * _window(p, 1, 0) + _window(p, 2, 0)
    down = _window(p, 2, 0) + 2 * _window(p, 2, 1) + _window(p, 2, 2)
    down -= _window(p, 0, 0) + 2 * _window(p, 0, 1) + _window(p, 0, 2)
    m = across.abs() + down.abs()  # [n, h, h]
    near = pad(m, (1, 1, 1, 1))  # beyond the border the slope is 0
    # On a ridge, a pixel beats both neighbours along its gradient: beside it, above and below, or diagonal.
    flat = down.abs() < 0.41421356 * across.abs()  # within 22.5 degrees of the horizontal
    steep = down.abs() > 2.41421356 * across.abs()
    rising = (across ^ down) < 0
    diagonal = torch.where(
        rising,
        (m > _window(near, 0, 2)) & (m > _window(near, 2, 0)),
        (m > _window(near, 0, 0)) & (m > _window(near, 2, 2)),
    )
    beside = (m > _window(near, 1, 0)) & (m >= _window(near, 1, 2))
    above = (m > _window(near, 0, 1)) & (m >= _window(near, 2, 1))
    ridge = torch.where(flat, beside, torch.where(steep, above, diagonal)) & (m > LOW)
    edges = ridge & (m > HIGH)
    while True:  # edges grow along ridges until nothing changes
        grown = (max_pool2d(edges.float().unsqueeze(1), 3, 1, 1).squeeze(1) > 0) & ridge
        if torch.equal(grown, edges):
            return edges
        edges = grown


def chamfer(edges: Tensor) -> Tensor:
    """Length of the shortest way to an edge in steps of STEPS, up to `FARTHEST`, which no edge means too."""
    h, w = edges.shape[1:]
    far = float(FARTHEST * 65536)
    distance = torch.full(edges.shape, far, device=edges.device).masked_fill(edges, 0.0)
    while True:  # every round takes one more step into account
        around = pad(distance, (2, 2, 2, 2), value=far)
        shorter = distance
        for (a, b), length in STEPS.items():
            for i, j in {(s * p, t * q) for p, q in ((a, b), (b, a)) for s in (-1, 1) for t in (-1, 1)}:
                step = around[:, 2 + i : 2 + i + h, 2 + j : 2 + j + w] + length
                shorter = torch.minimum(shorter, step)
        if torch.equal(shorter, distance):
            return distance / 65536
        distance = shorter


def equalised(levels: Tensor) -> Tensor:
    """Histogram equalisation of 8-bit layers: 255 (F(v) - F(v_0)) / (1 - F(v_0)), rounded; v_0 the lowest."""
    flat = levels.flatten(1)  # [n, hw]
    count = torch.zeros(len(flat), 256, dtype=torch.double, device=levels.device)
    count = count.scatter_add(1, flat, torch.ones_like(flat, dtype=torch.double))  # [n, 256]
    lowest = flat.amin(1, keepdim=True)  # [n, 1]
    first = count.gather(1, lowest)  # how many have it                       [n, 1]
    rest = flat.shape[1] - first
    table = (255 / rest.clamp_min(1) * (count.cumsum(1) - first)).round()
    table = torch.where(rest > 0, table, lowest.double())  # a constant layer stays as it is
    return table.gather(1, flat).view_as(levels)


def _window(padded: Tensor, i: int, j: int) -> Tensor:
    """Pixels at (i - 1, j - 1) from each one of a layer padded by one, [n, h, w]."""
    return padded[:, i : i + padded.shape[1] - 2, j : j + padded.shape[2] - 2]
