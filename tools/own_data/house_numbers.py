"""Images of SVHN: digits of house numbers in photographs, ten classes."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sgpa.data.images.cifar import load_images
from tools.own_data.scoring import CLASSIFICATION, baselines, fitted

COLUMNS = CLASSIFICATION
RECIPE = (
    "`sgpa.fit(images, labels, seed=S)` with its defaults on digits of house numbers: 10,000 images of the "
    "test set of SVHN (uint8, 32 x 32). 2,500 of them chose the number of steps, 3,000 others are the test "
    "rows, and a seed chooses the rows to learn from among the rest. Logistic regression has standardised "
    "pixels, C = 1, the forest 500 trees on raw pixels."
)
TUNING, TEST = 2500, 3000  # rows


def split(rows: int, seed: int, data_dir: Path | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows to learn from with their labels, and test rows with theirs."""
    images, labels = load_images("svhn", "test", data_dir)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(labels)))
    test, rest = order[TUNING : TUNING + TEST], order[TUNING + TEST :]
    learned = rest[torch.randperm(len(rest), generator=torch.Generator().manual_seed(seed))[:rows]]
    return images[learned], labels[learned], images[test], labels[test]


def measure(rows: int, seed: int, data_dir: Path | None, device: str = "cpu") -> dict[str, list[float]]:
    """The scores of `sgpa.fit` and of the baselines."""
    data = split(rows, seed, data_dir)
    return fitted(*data, seed=seed, device=device) | baselines(*data)
