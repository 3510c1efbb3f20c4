"""Blur. Images are [n, 3, h, w] in [0, 1], h = w."""

import torch
from torch import Tensor

from sgpa.data.corruptions import filters
from sgpa.data.corruptions.draws import Draws

ZOOM_STEP = (1 + 0.01) - 1  # as numpy.arange steps; 0.01 itself would round the factor 1.25 the other way


def gaussian_blur(x: Tensor, _: Draws, sigma: float) -> Tensor:
    """Convolution with a Gaussian, cut off at four sigma; beyond the border the border's pixel."""
    return filters.gaussian(x, sigma)


def defocus_blur(x: Tensor, _: Draws, radius: float, alias: float) -> Tensor:
    """Convolution with a disk of `radius`, its rim smoothed by a 3-tap Gaussian; mirrored border."""
    i = torch.arange(-int(radius) - 1, int(radius) + 2)  # the disk and a ring of zeros around it
    disk = (i.square() + i.square().unsqueeze(1) <= radius**2).double()  # [2r + 3, 2r + 3]
    tap = torch.softmax(torch.tensor([-1.0, 0.0, -1.0], dtype=torch.float64) / (2 * alias**2), 0)
    kernel = filters.separable(disk / disk.sum(), filters.band(tap, len(disk), "nearest"))
    kernel = kernel.float().double()  # OpenCV's precision decides where a mean of integers is cut off
    # A symmetric kernel is a sum of separable ones: K = sum_j l_j u_j u_j'. Disks this small need one or two.
    values, vectors = torch.linalg.eigh(kernel)
    parts = [
        value * filters.separable(x, filters.band(vector, x.shape[-1], "mirror"))
        for value, vector in zip(values.tolist(), vectors.mT, strict=True)
        if abs(value) > 1e-9
    ]
    return torch.stack(parts).sum(0)


def glass_blur(x: Tensor, draws: Draws, sigma: float, delta: int, iterations: int) -> Tensor:
    """Blur, displace every pixel inside the frame by up to `delta` to the upper left, blur.

    The original scans pixels from the lower right, and what reads like an exchange of two pixels is a copy
    from the neighbour, as both sides are views of one array. The neighbour at -delta, ..., delta - 1 has with
    delta = 1 not been visited yet, so that one pass is a gather from the pixels before it.
    """
    assert delta == 1, "a pass is a gather for displacements of one pixel only"
    n, c, h, w = x.shape
    x = (filters.gaussian(x, sigma) * 255).floor().flatten(2)  # [n, 3, hw]
    inside = torch.zeros(h, w, dtype=torch.long, device=x.device)
    inside[delta + 1 :, delta + 1 :] = 1
    here = torch.arange(h * w, device=x.device).view(h, w)
    for _ in range(iterations):
        dx, dy = draws.integers(-delta, delta, 2, h, w).unbind(1)  # [n, h, w]
        source = here + (dy * w + dx) * inside
        x = x.gather(2, source.view(n, 1, h * w).expand(-1, c, -1))
    return filters.gaussian((x / 255).view(n, c, h, w), sigma)


def motion_blur(x: Tensor, draws: Draws, radius: int, sigma: float) -> Tensor:
    """One-sided Gaussian along a random direction within 45 degrees of the horizontal."""
    return filters.motion(x, draws.uniform(low=-45, high=45), radius, sigma)


def zoom_blur(x: Tensor, _: Draws, highest: float) -> Tensor:
    """Mean of the image and of its enlargements by 1, 1.01, ..., `highest`."""
    count = round((highest - 1) / ZOOM_STEP) + 1
    zooms = [filters.zoom_matrix(x.shape[-1], 1 + ZOOM_STEP * k) for k in range(count)]
    total = x
    for matrix in zooms:
        total = total + filters.separable(x, matrix)
    return total / (count + 1)
