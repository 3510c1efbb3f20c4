"""The digits task, which needs no download: 8 x 8 handwritten digits, few of them for training.

The images are in `digits.npz` beside this file (see README.md there). Shifted test sets are noisy and rotated
digits at five strengths; the out-of-distribution set is 1,000 patches of two photographs.
"""

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from sgpa.core.errors import check_fields
from sgpa.data.dataset import Dataset, Splits

NOISE = (0.1, 0.2, 0.3, 0.4, 0.5)  # standard deviation of pixel noise; pixels are in [0, 1]
ROTATION = (10.0, 20.0, 30.0, 45.0, 60.0)  # degrees, to either side
STRENGTHS = (1, 2, 3, 4, 5)
CLASSES = tuple(str(digit) for digit in range(10))
SPLIT_SEED = 0  # all runs share one split, so that methods can be paired and ensembled
PATCHES = 1000  # in photo_patches.npz
FOLDER = Path(__file__).parent


def load(train: int = 300, validation: int = 300) -> Splits:
    """Digits as images [N, 1, 8, 8] in [-1, 1] with labels 0..9.

    Args:
        train: Training images, 10 or more.
        validation: Validation images, 10 or more.

    Returns:
        The splits; what is left of the 1,797 images is the test set.

    Example:
        >>> len(load().test)
        1197
    """
    with np.load(FOLDER / "digits.npz", allow_pickle=False) as file:
        images = torch.tensor(file["images"], dtype=torch.float32).div(16).unsqueeze(1)  # [N, 1, 8, 8]
        labels = torch.tensor(file["labels"], dtype=torch.int64)  # [N]
    total = train + validation
    check_fields(
        "digits",
        [
            ("train", train, train >= 10, "10 or more"),
            ("validation", validation, validation >= 10, "10 or more"),
            ("train + validation", total, total < len(labels), f"below {len(labels)}"),
        ],
    )
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SPLIT_SEED))
    data = Dataset(normalise(images), labels)
    return Splits(data[order[:train]], data[order[train:total]], data[order[total:]])


def normalise(pixels: Tensor) -> Tensor:
    """[0, 1] -> [-1, 1]."""
    return pixels * 2 - 1


def denormalise(images: Tensor) -> Tensor:
    """[-1, 1] -> [0, 1]."""
    return (images + 1) / 2


def noisy(data: Dataset, strength: int) -> Dataset:
    """Gaussian pixel noise with a fixed seed, clipped to the valid range."""
    pixels = denormalise(_images(data))
    noise = torch.randn(pixels.shape, generator=torch.Generator().manual_seed(strength))
    return Dataset(normalise((pixels + NOISE[strength - 1] * noise).clamp(0, 1)), data.targets)


def rotated(data: Dataset, strength: int) -> Dataset:
    """Every digit rotated by the same angle; every second one in the other direction."""
    pixels = denormalise(_images(data))
    angle = torch.full((len(data),), math.radians(ROTATION[strength - 1]))  # [N]
    angle[1::2] *= -1
    zero = torch.zeros_like(angle)
    rows = [angle.cos(), -angle.sin(), zero, angle.sin(), angle.cos(), zero]
    grid = affine_grid(torch.stack(rows, -1).view(-1, 2, 3), list(pixels.shape), align_corners=False)
    return Dataset(normalise(grid_sample(pixels, grid, align_corners=False)), data.targets)


def photo_patches(count: int = PATCHES) -> Tensor:
    """Grey patches [count, 1, 8, 8] of photographs of a temple and a flower, stretched to [-1, 1].

    They were drawn at random, from both photographs in turn, without patches of plain sky.
    """
    check_fields("photo_patches", [("count", count, 1 <= count <= PATCHES, f"1..{PATCHES}")])
    with np.load(FOLDER / "photo_patches.npz", allow_pickle=False) as file:
        grey = file["channel_sums"][:count].astype(np.float32) / np.float32(3)  # [count, 8, 8]
    lowest, highest = (grey.min((1, 2), keepdims=True), grey.max((1, 2), keepdims=True))
    return normalise(torch.tensor((grey - lowest) / (highest - lowest)).unsqueeze(1))


SHIFTS = {"digits-noise": noisy, "digits-rotation": rotated}


def _images(data: Dataset) -> Tensor:
    assert isinstance(data.inputs, Tensor)
    return data.inputs
