"""Augmentation for a user's own images: what is changed follows from the images and their classes."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from sgpa.core.errors import InputError
from sgpa.core.inputs import Inputs
from sgpa.data.images.augment import crop, flip, grayscale, three_augment

SHIFT_SHARE = 1 / 8  # of a side, the largest shift
LEAST_SIDE = 16  # pixels; a shift of smaller images by whole pixels removes too much of them
COMPARED = 2000  # rows that decide about flips and colours, at most
KEPT_SHARE = 0.5  # of what the nearest neighbour recognises, where a change is harmless


@dataclass(frozen=True)
class ShiftAndFlip:
    """Shift every image by up to `shift` pixels, its edges reflected, and mirror half of the images."""

    shift: int
    flips: bool

    def __call__(self, images: Inputs, generator: torch.Generator) -> Tensor:
        """Changed images [B, C, h, w] of any type."""
        if not isinstance(images, Tensor) or images.ndim != 4:
            raise InputError("augmentation by shifts takes images [B, C, h, w]")
        count, device = (len(images),), generator.device
        if self.shift:
            top, left = (
                torch.randint(2 * self.shift + 1, count, generator=generator, device=device) for _ in range(2)
            )
            images = crop(images, top, left, self.shift)
        if self.flips:
            images = flip(images, torch.rand(count, generator=generator, device=device) < 0.5)
        return images


@dataclass(frozen=True)
class SmallAffine:
    """Shift every image by up to `shift` of a side, turn it by up to `degrees`, scale it by up to `scale`.

    Pixels are interpolated, edges are repeated. For images of few pixels, such as digits of 8 x 8.
    """

    shift: float = 0.075
    degrees: float = 10.0
    scale: float = 0.1

    def __call__(self, images: Inputs, generator: torch.Generator) -> Tensor:
        """Changed images [B, C, h, w] of any type."""
        if not isinstance(images, Tensor) or images.ndim != 4:
            raise InputError("augmentation by affine maps takes images [B, C, h, w]")
        turn, size, right, down = (
            2 * torch.rand(4, len(images), generator=generator, device=generator.device).to(images.device) - 1
        )  # [B] each, in [-1, 1]
        angle, zoom = turn * math.radians(self.degrees), 1 / (1 + self.scale * size)
        rows = (
            torch.stack([zoom * angle.cos(), -zoom * angle.sin(), 2 * self.shift * right], -1),
            torch.stack([zoom * angle.sin(), zoom * angle.cos(), 2 * self.shift * down], -1),
        )
        grid = affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)  # [B, h, w, 2]
        x = grid_sample(images.float(), grid, align_corners=False, padding_mode="border")
        return x.to(images.dtype) if images.is_floating_point() else x.round().to(images.dtype)


@dataclass(frozen=True)
class ThreeAugment:
    """3-Augment (`sgpa.data.images.augment`): shifts, flips, one of grey, solarise and blur, and jitter."""

    def __call__(self, images: Inputs, generator: torch.Generator) -> Tensor:
        """Changed images [B, 3, h, w] uint8."""
        return three_augment(images, generator)


def augmentation_for(images: Inputs, targets: Tensor) -> ShiftAndFlip | SmallAffine | ThreeAugment | None:
    """The augmentation that suits images with these classes or values; None for other inputs.

    Colour images (uint8, 16 pixels a side and more) get 3-Augment where neither mirroring nor the loss of
    colour hides their classes (`recognised_as_well`). Others of that size are shifted by up to an eighth of
    a side, and mirrored where mirroring does not hide their classes. Smaller images are moved by parts of a
    pixel, turned and scaled a little, where that does not hide their classes.
    """
    if not isinstance(images, Tensor) or images.ndim != 4:
        return None
    if min(images.shape[2:]) < LEAST_SIDE:
        affine, generator = SmallAffine(), torch.Generator().manual_seed(0)
        return affine if recognised_as_well(images, targets, lambda x: affine(x, generator)) else None
    flips = recognised_as_well(images, targets, lambda x: x.flip(3))
    coloured = images.dtype == torch.uint8 and images.shape[1] == 3
    if flips and coloured and recognised_as_well(images, targets, grayscale):
        return ThreeAugment()
    return ShiftAndFlip(max(1, round(SHIFT_SHARE * min(images.shape[2:]))), flips=flips)


def recognised_as_well(images: Tensor, targets: Tensor, change: Callable[[Tensor], Tensor]) -> bool:
    """Whether the nearest neighbour still finds the class of changed images.

    Each row is compared with all other rows, as it is and changed. What counts is how much more often the
    class is found than by always naming the most frequent one. The change must keep half of that, give or
    take one standard error: mirrored digits and letters do not, nor do fruits without colour. Values are not
    classes: nothing is known about them.

    >>> recognised_as_well(torch.zeros(4, 1, 2, 2), torch.tensor([0, 1, 0, 1]), lambda x: x.flip(3))
    True
    """
    if targets.is_floating_point() or len(images) < 2:
        return False
    y, rows = targets[:COMPARED], _small(images[:COMPARED])  # [N], [N, C h w]

    def recognised(queries: Tensor) -> Tensor:
        distance = torch.cdist(queries, rows)
        distance.fill_diagonal_(float("inf"))  # a row is its own neighbour neither as it is nor changed
        return (y[distance.argmin(1)] == y).double()  # [N]

    before, after = recognised(rows), recognised(_small(change(images[:COMPARED])))  # [N], [N]
    guessed = float(y.bincount().max()) / len(y)
    error = float((before - after).std()) / len(y) ** 0.5
    lost = float((before - after).mean())
    return lost - error <= (1 - KEPT_SHARE) * max(0.0, float(before.mean()) - guessed)


def _small(images: Tensor) -> Tensor:
    """Pixels of images with sides of 16 pixels at most, [N, C h w]."""
    x = images.float()
    return (torch.nn.functional.adaptive_avg_pool2d(x, (16, 16)) if min(x.shape[2:]) > 16 else x).flatten(1)
