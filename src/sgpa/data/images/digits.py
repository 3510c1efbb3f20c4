"""The embedded task: 8 x 8 handwritten digits that ship with scikit-learn, few of them for training.

Nothing is downloaded. Shifted test sets are noisy and rotated digits at five strengths; the
out-of-distribution set is cut from the two photographs that scikit-learn also ships.
"""

import math

import numpy as np
import torch
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from sgpa.core.errors import check_fields
from sgpa.data.dataset import Dataset, Splits

NOISE = (0.1, 0.2, 0.3, 0.4, 0.5)  # standard deviation of pixel noise; pixels are in [0, 1]
ROTATION = (10.0, 20.0, 30.0, 45.0, 60.0)  # degrees, to either side
STRENGTHS = (1, 2, 3, 4, 5)
CLASSES = tuple(str(digit) for digit in range(10))
SPLIT_SEED = 0  # all runs share one split, so that methods can be paired and ensembled


def load(train: int = 300, validation: int = 300) -> Splits:
    """Digits as [N, 1, 8, 8] in [-1, 1]; the rest of the 1,797 is the test set."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).div(16).unsqueeze(1)
    labels = torch.tensor(data.target, dtype=torch.int64)
    check_fields(
        "digits",
        [
            ("train", train, train >= 10, "10 or more"),
            ("validation", validation, validation >= 10, "10 or more"),
            (
                "train + validation",
                train + validation,
                train + validation < len(labels),
                f"below {len(labels)}",
            ),
        ],
    )
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SPLIT_SEED))
    all_rows = Dataset(normalise(images), labels)
    cut = (train, train + validation)
    return Splits(all_rows[order[: cut[0]]], all_rows[order[cut[0] : cut[1]]], all_rows[order[cut[1] :]])


def normalise(pixels: Tensor) -> Tensor:
    """[0, 1] -> [-1, 1]."""
    return pixels * 2 - 1


def denormalise(images: Tensor) -> Tensor:
    """[-1, 1] -> [0, 1]."""
    return (images + 1) / 2


def noisy(data: Dataset, strength: int) -> Dataset:
    """Gaussian pixel noise, clipped to the valid range; the same noise for every caller."""
    pixels = denormalise(_images(data))
    noise = torch.randn(pixels.shape, generator=torch.Generator().manual_seed(strength))
    return Dataset(normalise((pixels + NOISE[strength - 1] * noise).clamp(0, 1)), data.targets)


def rotated(data: Dataset, strength: int) -> Dataset:
    """Every digit turned by the same angle, every other one to the other side."""
    pixels = denormalise(_images(data))
    angle = torch.full((len(data),), math.radians(ROTATION[strength - 1]))
    angle[1::2] *= -1
    zero = torch.zeros_like(angle)
    rows = [angle.cos(), -angle.sin(), zero, angle.sin(), angle.cos(), zero]
    grid = affine_grid(torch.stack(rows, -1).view(-1, 2, 3), list(pixels.shape), align_corners=False)
    return Dataset(normalise(grid_sample(pixels, grid, align_corners=False)), data.targets)


def photo_patches(count: int = 1000) -> Tensor:
    """8 x 8 grey patches of two photographs (a temple and a flower), contrast stretched like a digit's."""
    rng = np.random.default_rng(0)
    photos = [np.asarray(photo, dtype=np.float32).mean(-1) for photo in load_sample_images().images]
    patches: list[np.ndarray] = []
    while len(patches) < count:
        photo = photos[len(patches) % len(photos)]
        row, column = (int(rng.integers(0, side - 8)) for side in photo.shape)
        patch = photo[row : row + 8, column : column + 8]
        if np.ptp(patch) > 32:  # skip plain sky: stretched, it would be noise
            patches.append((patch - patch.min()) / np.ptp(patch))
    return normalise(torch.tensor(np.stack(patches)).unsqueeze(1))


SHIFTS = {"digits-noise": noisy, "digits-rotation": rotated}


def _images(data: Dataset) -> Tensor:
    assert isinstance(data.inputs, Tensor)
    return data.inputs
