"""Digital and geometric changes. Images are [n, 3, h, w] in [0, 1], h = w."""

import io

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import grid_sample

from sgpa.data.corruptions import filters
from sgpa.data.corruptions.draws import Draws


def contrast(x: Tensor, _: Draws, factor: float) -> Tensor:
    """(x - m) factor + m, m the mean of each channel of each image."""
    mean = x.mean((2, 3), keepdim=True)  # [n, 3, 1, 1]
    return (x - mean) * factor + mean


def saturate(x: Tensor, _: Draws, multiply: float, add: float) -> Tensor:
    """S multiply + add in HSV, clipped to [0, 1].

    With V the largest and V - d the smallest channel, S = d / V and channel i is V (1 - S f_i), where
    f_i = (V - x_i) / d depends on the hue only. Grey has no hue; the convention makes it red, f = (0, 1, 1).
    """
    value = x.amax(1, keepdim=True)  # V                                     [n, 1, h, h]
    spread = value - x.amin(1, keepdim=True)  # d                            [n, 1, h, h]
    red = x.new_tensor([0.0, 1.0, 1.0]).view(3, 1, 1)
    f = torch.where(spread > 0, (value - x) / spread, red)  # [n, 3, h, h]
    saturation = torch.where(value > 0, spread / value, 0)
    return value * (1 - (saturation * multiply + add).clamp(0, 1) * f)


def elastic_transform(x: Tensor, draws: Draws, alpha: float, sigma: float, jitter: float) -> Tensor:
    """A random affine map, then a smooth random displacement; lengths are shares of the image's side.

    The affine map takes three points to places up to `jitter` away (mirrored border); the displacement is
    uniform noise in +-1, blurred by `sigma`, times `alpha` (reflected border). Both interpolate linearly.
    """
    h = x.shape[-1]
    middle, arm = float(h // 2), float(h // 3)
    corners = [[middle + arm, middle + arm], [middle + arm, middle - arm], [middle - arm, middle - arm]]
    before = torch.tensor(corners, dtype=torch.float64, device=x.device)  # points as (x, y)         [3, 2]
    after = before + draws.uniform(3, 2, low=-1, high=1) * (jitter * h)  # [n, 3, 2]
    one = torch.ones_like(after[..., :1])
    # Row vectors: [p', 1] A = p, the way back from a pixel of the result to the image.
    affine = torch.linalg.solve(torch.cat([after, one], 2), before.expand_as(after))  # [n, 3, 2]
    line = torch.arange(h, dtype=torch.float64, device=x.device)
    here = torch.stack([line.expand(h, h), line.unsqueeze(1).expand(h, h)], -1)  # pixels as (x, y) [h, h, 2]
    across, down, shift = (1024 * affine).view(-1, 3, 1, 1, 2).unbind(1)  # each [n, 1, 1, 2]
    # OpenCV's coordinates are sums of multiples of 1/1024, rounded to multiples of 1/32.
    source = (here[..., :1] * across).round() + (here[..., 1:] * down + shift).round()  # [n, h, h, 2]
    source = ((source + 16) / 32).floor() / 32
    x = grid_sample(x, (2 * source / (h - 1) - 1), padding_mode="reflection", align_corners=True)
    noise = draws.uniform(2, h, h, low=-1, high=1)
    shift = filters.gaussian(noise, sigma * h, "reflect", truncate=3.0) * (alpha * h)  # [n, 2, h, h]
    source = here + shift.movedim(1, -1)
    return grid_sample(x, ((2 * source + 1) / h - 1), padding_mode="reflection", align_corners=False)


def pixelate(x: Tensor, _: Draws, scale: float) -> Tensor:
    """Down to int(scale h) pixels and up again with Pillow's BOX filter: rows, then columns, each rounded."""
    h = x.shape[-1]
    small = int(h * scale)
    levels = (x * 255).round()
    for matrix in (filters.box_matrix(h, small), filters.box_matrix(small, h)):
        a = matrix.to(x)
        levels = (levels @ a.mT + 0.5).floor()
        levels = (a @ levels + 0.5).floor()
    return levels / 255


def jpeg_compression(x: Tensor, _: Draws, quality: int) -> Tensor:
    """Through Pillow's JPEG encoder and back, image by image, on the CPU."""
    pixels = (x * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()  # [n, h, h, 3]

    def round_trip(image: np.ndarray) -> np.ndarray:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=quality)
        return np.asarray(Image.open(file))

    result = np.stack([round_trip(image) for image in pixels])
    return torch.from_numpy(result).permute(0, 3, 1, 2).to(x.device, x.dtype) / 255
