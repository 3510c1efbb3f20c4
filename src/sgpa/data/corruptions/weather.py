"""Weather. Images are [n, 3, h, w] in [0, 1], h = w."""

import torch
from torch import Tensor

from sgpa.data.corruptions import filters
from sgpa.data.corruptions.draws import Draws
from sgpa.data.corruptions.textures import frost_source, frost_textures

GREY = (0.299, 0.587, 0.114)  # luminance of red, green and blue


def snow(
    x: Tensor,
    draws: Draws,
    mean: float,
    std: float,
    zoom: float,
    threshold: float,
    radius: int,
    sigma: float,
    keep: float,
) -> Tensor:
    """Enlarged specks of noise, blurred along the fall and added, once more upside down, to a whitened image.

    keep x + (1 - keep) max(x, 1.5 grey(x) + 0.5) + s + rot180(s), with s in whole grey levels.
    """
    h = x.shape[-1]
    layer = mean + std * draws.normal(1, h, h)  # [n, 1, h, h]
    layer = filters.separable(layer, filters.zoom_matrix(h, zoom))
    layer = layer.masked_fill(layer < threshold, 0).clamp(0, 1).mul(255).floor().div(255)
    layer = filters.motion(layer, draws.uniform(low=-135, high=-45), radius, sigma)
    grey = (x * x.new_tensor(GREY).view(3, 1, 1)).sum(1, keepdim=True)  # [n, 1, h, h]
    whitened = keep * x + (1 - keep) * torch.maximum(x, 1.5 * grey + 0.5)
    return whitened + layer + layer.flip(-1, -2)


def frost(x: Tensor, draws: Draws, image_weight: float, frost_weight: float) -> Tensor:
    """image_weight x + frost_weight t, t a random window of a random texture, [n, 3, h, w]."""
    sheets = frost_textures(frost_source())
    h, w = x.shape[-2:]
    which = draws.integers(0, len(sheets))  # [n]
    u, v = draws.uniform(2).unbind(1)  # where the window starts, as shares of the room there is   [n]
    out = torch.empty_like(x)
    for number, sheet in enumerate(sheets):
        rows = which == number
        height, width = sheet.shape[1:]
        top = (u[rows] * max(1, height - h)).long().unsqueeze(1) + torch.arange(h, device=x.device)
        left = (v[rows] * max(1, width - w)).long().unsqueeze(1) + torch.arange(w, device=x.device)
        # images larger than the texture see it repeated
        source = (top % height).unsqueeze(2) * width + (left % width).unsqueeze(1)  # [n_i, h, w]
        window = sheet.to(x.device).flatten(1)[:, source].transpose(0, 1)  # [n_i, 3, h, w]
        # in whole grey levels: many sums are whole too, and are cut off where the original's are
        out[rows] = (image_weight * (x[rows] * 255).round() + frost_weight * window).floor() / 255
    return out


def fog(x: Tensor, draws: Draws, strength: float, decay: float) -> Tensor:
    """(x + strength p) m / (m + strength), m the image's highest value, p a plasma cloud in [0, 1]."""
    h = x.shape[-1]
    side = 1 << (h - 1).bit_length()
    cloud = plasma(x.new_zeros(len(x), side, side), draws, decay)[:, :h, :h].unsqueeze(1)  # [n, 1, h, h]
    highest = x.amax((1, 2, 3), keepdim=True)  # [n, 1, 1, 1]
    return (x + strength * cloud) * highest / (highest + strength)


def plasma(cloud: Tensor, draws: Draws, decay: float) -> Tensor:
    """Periodic fractal by the diamond-square algorithm, scaled to [0, 1], in a `cloud` of 0 [n, side, side].

    Every level puts in the centres of squares, then of diamonds: the mean of the four corners plus noise
    uniform in +-w^2, where w = 100 is divided by `decay` from level to level.
    """
    side = cloud.shape[-1]
    step, w = side, 100.0
    while step >= 2:
        half, k = step // 2, side // step

        def noise(k: int = k, w: float = w) -> Tensor:
            return w**2 * draws.uniform(k, k, low=-1, high=1)

        corner = cloud[:, ::step, ::step]  # [n, k, k]
        pair = corner + corner.roll(-1, 1)
        centre = (pair + pair.roll(-1, 2)) / 4 + noise()
        cloud[:, half::step, half::step] = centre
        above = (centre + centre.roll(1, 1) + corner + corner.roll(-1, 2)) / 4 + noise()
        beside = (centre + centre.roll(1, 2) + corner + corner.roll(-1, 1)) / 4 + noise()
        cloud[:, ::step, half::step] = above
        cloud[:, half::step, ::step] = beside
        step, w = half, w / decay
    cloud = cloud - cloud.amin((1, 2), keepdim=True)
    return cloud / cloud.amax((1, 2), keepdim=True)


def brightness(x: Tensor, _: Draws, add: float) -> Tensor:
    """V + add in HSV, at most 1. Hue and saturation are ratios, so colours scale with V; black turns grey."""
    value = x.amax(1, keepdim=True)  # V                                     [n, 1, h, h]
    brighter = (value + add).clamp(max=1)
    return brighter - torch.where(value > 0, (value - x) / value, 0) * brighter
