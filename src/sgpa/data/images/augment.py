"""3-Augment (Touvron et al., DeiT III, 2022), the paper's augmentation, on whole batches of uint8 images.

Every image gets a random crop after reflecting four pixels, a flip with probability 1/2, exactly one of
grayscale, solarize and blur, and jitter of brightness, contrast and saturation in random order. Random
parameters are drawn first (`draw`), on the generator's device and without synchronisation. Each step is then
a function of images and one parameter per image that equals Pillow's operation, roundings included.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sgpa.core.errors import InputError
from sgpa.core.inputs import Inputs

PADDING = 4
BLUR = (0.1, 2.0)  # range of the Gaussian's standard deviation, in pixels
JITTER = (0.7, 1.3)  # range of the factors of brightness, contrast and saturation
GREY, SOLARISED, BLURRED = range(3)
BRIGHTNESS, CONTRAST, SATURATION = range(3)
REACH = 2  # the box that makes up a Gaussian of BLUR[1] covers pixels at most this far


@dataclass(frozen=True)
class Draw:
    """Random parameters of each image of a batch."""

    top: Tensor  # rows left out above, of 0..2 PADDING          [B] int
    left: Tensor  # columns left out on the left                 [B] int
    flipped: Tensor  # [B] bool
    effect: Tensor  # GREY, SOLARISED or BLURRED                 [B] int
    radius: Tensor  # of the blur                                [B] float
    factors: Tensor  # of BRIGHTNESS, CONTRAST and SATURATION    [B, 3] float
    order: Tensor  # in which they are applied                   [B, 3] int


def three_augment(images: Inputs, generator: torch.Generator) -> Tensor:
    """3-Augment of a batch.

    Args:
        images: Images [B, 3, h, w] uint8, larger than 4 pixels a side.
        generator: Source of randomness, on the device of the images.

    Returns:
        New images of the same shape.

    Example:
        >>> images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
        >>> three_augment(images, torch.Generator().manual_seed(0)).shape
        torch.Size([2, 3, 32, 32])
    """
    if (
        not isinstance(images, Tensor)
        or images.dtype != torch.uint8
        or images.shape[1:2] != (3,)
        or images.dim() != 4
    ):
        got = f"{images.dtype} {list(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        raise InputError(f"3-Augment takes images as uint8 [B, 3, h, w], got {got}")
    if min(images.shape[2:]) <= PADDING:
        raise InputError(
            f"3-Augment reflects {PADDING} pixels: images of {list(images.shape[2:])} are too small"
        )
    return apply(images, draw(len(images), generator))


def draw(count: int, generator: torch.Generator) -> Draw:
    """Independent parameters for `count` images."""

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device=generator.device)

    def integers(below: int) -> Tensor:
        return torch.randint(below, (count,), generator=generator, device=generator.device)

    return Draw(
        top=integers(2 * PADDING + 1),
        left=integers(2 * PADDING + 1),
        flipped=uniform(count) < 0.5,
        effect=integers(3),
        radius=BLUR[0] + (BLUR[1] - BLUR[0]) * uniform(count),
        factors=JITTER[0] + (JITTER[1] - JITTER[0]) * uniform(count, 3),
        order=uniform(count, 3).argsort(1),
    )


def apply(images: Tensor, drawn: Draw) -> Tensor:
    """The drawn changes to images [B, 3, h, w]."""
    images = flip(crop(images, drawn.top, drawn.left), drawn.flipped)
    effect = drawn.effect.view(-1, 1, 1, 1)
    # all three effects of every image: selecting rows would synchronise with the device
    other = torch.where(effect == SOLARISED, solarize(images), gaussian_blur(images, drawn.radius))
    images = torch.where(effect == GREY, grayscale(images), other)
    for step in range(3):
        what = drawn.order[:, step]  # [B]
        images = enhance(images, what, drawn.factors.gather(1, what.unsqueeze(1)).squeeze(1))
    return images


def crop(images: Tensor, top: Tensor, left: Tensor, padding: int = PADDING) -> Tensor:
    """The h x w window at (top, left) [B] of images with `padding` reflected pixels on every side."""
    h, w = images.shape[2:]
    rows = _reflected(top - padding, h)  # [B, h]
    columns = _reflected(left - padding, w)  # [B, w]
    rows = rows[:, None, :, None].expand(-1, images.shape[1], -1, w)
    columns = columns[:, None, None, :].expand(-1, images.shape[1], h, -1)
    return images.gather(2, rows).gather(3, columns)


def flip(images: Tensor, flipped: Tensor) -> Tensor:
    """Images mirrored left to right where `flipped` [B]."""
    return torch.where(flipped.view(-1, 1, 1, 1), images.flip(3), images)


def grayscale(images: Tensor) -> Tensor:
    """Luminance (ITU-R 601-2) in all three channels; to the bit what Pillow's mode L has."""
    return _luminance(images).to(torch.uint8).expand_as(images)


def solarize(images: Tensor) -> Tensor:
    """Pixels of 128 and above inverted."""
    return torch.where(images < 128, images, 255 - images)


def gaussian_blur(images: Tensor, radius: Tensor) -> Tensor:
    """Blur of standard deviation `radius` [B] <= 2, as Pillow does it: three box filters in each direction.

    A box of fractional radius r has weights (r + 1 - |d|) clamped to [0, 1], over 2r + 1; r is such that
    three boxes have the Gaussian's variance. Every pass is rounded to whole numbers. On CIFAR-10, 4 in
    100,000 values are 1 of 255 levels off Pillow's; a true Gaussian is off by up to 30.
    """
    variance = radius.square() / 3  # of one box                                      [B]
    whole = ((12 * variance + 1).sqrt() - 1).div(2).floor()
    part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance) / (6 * (variance - (whole + 1).square()))
    box = (whole + part).unsqueeze(1)  # fractional radius                            [B, 1]
    reach = torch.arange(-REACH, REACH + 1, device=images.device)  # d
    weights = (box + 1 - reach.abs()).clamp(0, 1) / (2 * box + 1)  # [B, 2 REACH + 1]
    down, across = (_along(weights, reach, side) for side in images.shape[2:])  # [B, 1, h, h], [B, 1, w, w]
    blurred = images.to(weights.dtype)  # [B, 3, h, w]
    for _ in range(3):
        blurred = (blurred @ across.mT).add(0.5).floor()
    for _ in range(3):
        blurred = (down @ blurred).add(0.5).floor()
    return blurred.to(torch.uint8)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Away from black by `factor` [B]."""
    return enhance(images, torch.full_like(factor, BRIGHTNESS, dtype=torch.long), factor)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Away from the image's mean luminance by `factor` [B]."""
    return enhance(images, torch.full_like(factor, CONTRAST, dtype=torch.long), factor)


def saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Away from grey by `factor` [B]."""
    return enhance(images, torch.full_like(factor, SATURATION, dtype=torch.long), factor)


def enhance(images: Tensor, what: Tensor, factor: Tensor) -> Tensor:
    """g + factor (x - g), where `what` [B] selects g: black, the mean luminance, or the pixel's luminance."""
    grey = _luminance(images).float()  # [B, 1, h, w]
    mean = (grey.mean((2, 3), keepdim=True) + 0.5).floor()  # [B, 1, 1, 1]
    what = what.view(-1, 1, 1, 1)
    ground = torch.where(what == SATURATION, grey, torch.where(what == CONTRAST, mean, 0.0))
    return (ground + factor.view(-1, 1, 1, 1) * (images - ground)).clamp(0, 255).to(torch.uint8)


def _luminance(images: Tensor) -> Tensor:
    """Integers [B, 1, h, w], in sixteen-bit fixed point as Pillow computes them."""
    red, green, blue = images.int().split(1, 1)
    return (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16


def _reflected(start: Tensor, side: int) -> Tensor:
    """Indices [B, side] of pixels from `start` [B] on, reflected at both edges."""
    index = (start.unsqueeze(1) + torch.arange(side, device=start.device)).abs()
    return (side - 1) - ((side - 1) - index).abs()


def _along(weights: Tensor, reach: Tensor, side: int) -> Tensor:
    """The filter along a side, edges repeated, as a matrix [B, 1, side, side]."""
    at = torch.arange(side, device=weights.device)
    sources = (at + reach.unsqueeze(1)).clamp(0, side - 1)  # pixel at offset d     [D, side]
    picks = (sources.unsqueeze(2) == at).to(weights.dtype)  # [D, side, side]
    return torch.einsum("bd,dij->bij", weights, picks).unsqueeze(1)
