"""Linear filters of small images: a separable one is a matrix on each side, A X A'."""

import math
from typing import Literal

import torch
from torch import Tensor

Border = Literal["nearest", "mirror", "reflect"]  # aaa|abcd|ddd, dcb|abcd|cba, cba|abcd|dcb


def separable(x: Tensor, matrix: Tensor) -> Tensor:
    """A X A' for images [..., h, h] and a matrix [h, h]."""
    a = matrix.to(x)
    return a @ x @ a.mT


def gaussian_kernel(sigma: float, truncate: float = 4.0) -> Tensor:
    """exp(-i^2 / 2 sigma^2), normalised, for |i| up to round(truncate sigma), [2r + 1]."""
    r = int(truncate * sigma + 0.5)
    if r == 0:
        return torch.ones(1, dtype=torch.float64)
    i = torch.arange(-r, r + 1, dtype=torch.float64)
    return torch.softmax(-i.square() / (2 * sigma**2), 0)


def band(kernel: Tensor, size: int, border: Border) -> Tensor:
    """Matrix [h, h] that correlates a row of `size` = h pixels with a kernel [2r + 1]."""
    r = len(kernel) // 2
    i = torch.arange(size).unsqueeze(1) + torch.arange(-r, r + 1)  # pixels under the kernel    [h, 2r + 1]
    if border == "nearest":
        i = i.clamp(0, size - 1)
    else:
        period = max(1, 2 * size - 2) if border == "mirror" else 2 * size
        i = i % period
        i = torch.minimum(i, period - i if border == "mirror" else period - 1 - i)
    return torch.zeros(size, size, dtype=kernel.dtype).scatter_add(1, i, kernel.expand(size, -1))


def gaussian(x: Tensor, sigma: float, border: Border = "nearest", truncate: float = 4.0) -> Tensor:
    """Gaussian blur of images [..., h, h]."""
    return separable(x, band(gaussian_kernel(sigma, truncate), x.shape[-1], border))


def box3(x: Tensor) -> Tensor:
    """Mean over 3 x 3 pixels with a mirrored border, of images [..., h, h]."""
    return separable(x, band(torch.full((3,), 1 / 3, dtype=torch.float64), x.shape[-1], "mirror"))


def zoom_matrix(size: int, factor: float) -> Tensor:
    """Matrix [h, h] that enlarges the centre of a row of `size` = h pixels `factor` times, linearly.

    ceil(h / factor) pixels are stretched so that the first and the last stay first and last, and what sticks
    out beyond h pixels is cut off on both sides.
    """
    crop = math.ceil(size / factor)
    out = round(crop * factor)
    top, trim = (size - crop) // 2, (out - size) // 2
    at = (torch.arange(size, dtype=torch.float64) + trim) * ((crop - 1) / max(out - 1, 1)) + top  # [h]
    return (1 - (at.unsqueeze(1) - torch.arange(size)).abs()).clamp_min(0)  # hat functions            [h, h]


def box_matrix(size: int, out: int) -> Tensor:
    """Matrix [out, size] of Pillow's BOX filter: the mean of the pixels whose centres fall into a new one."""
    scale = size / out
    support = max(scale, 1.0) / 2
    matrix = torch.zeros(out, size, dtype=torch.float64)
    for i in range(out):
        centre = (i + 0.5) * scale
        for j in range(max(0, int(centre - support + 0.5)), min(size, int(centre + support + 0.5))):
            matrix[i, j] = float(-support < j - centre + 0.5 <= support)
    return matrix / matrix.sum(1, keepdim=True)


def motion(x: Tensor, angle: Tensor, radius: int, sigma: float) -> Tensor:
    """ImageMagick's motion blur of images [n, c, h, w] in [0, 1] along `angle` [n] in degrees.

    y[p] = sum_i k_i x[p + ceil(i (cos, sin) - 1/2)], k_i ~ exp(-i^2 / 2 sigma^2) for i = 0, ..., 2 radius:
    one-sided, in whole pixels, beyond the border the border's pixel. ImageMagick returns 8-bit images, so
    the result is rounded to whole grey levels.
    """
    n, c, h, w = x.shape
    i = torch.arange(2 * radius + 1, dtype=torch.float64)
    weights: list[float] = torch.softmax(-i.square() / (2 * sigma**2), 0).tolist()
    direction = torch.deg2rad(angle.double())
    dx, dy = direction.cos(), direction.sin()  # [n]
    pixels, y = x.flatten(2), torch.zeros_like(x).flatten(2)  # [n, c, hw]
    rows, columns = torch.arange(h, device=x.device), torch.arange(w, device=x.device)
    for step, weight in enumerate(weights):
        if weight < 1e-7:  # far below one of ImageMagick's 65,536 levels
            break
        row = (rows + (step * dy - 0.5).ceil().long().unsqueeze(1)).clamp(0, h - 1)  # [n, h]
        column = (columns + (step * dx - 0.5).ceil().long().unsqueeze(1)).clamp(0, w - 1)  # [n, w]
        source = (row.unsqueeze(2) * w + column.unsqueeze(1)).view(n, 1, h * w).expand(-1, c, -1)
        y += weight * pixels.gather(2, source)
    return (y * 255 + 0.5).floor().div(255).view_as(x)
