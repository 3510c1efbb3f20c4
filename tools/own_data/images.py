"""Images of three classes of CIFAR-10: airplanes, cats and ships."""

from pathlib import Path

import torch
from torch import Tensor

from sgpa.data.images.cifar import cifar
from tools.own_data.scoring import CLASSIFICATION, baselines, fitted

COLUMNS = CLASSIFICATION
RECIPE = (
    "`sgpa.fit(images, labels, seed=S)` with its defaults on airplanes, cats and ships of CIFAR-10 (uint8, "
    "32 x 32); all 3,000 test images of these classes. Logistic regression has standardised pixels, C = 1, "
    "the forest 500 trees on raw pixels."
)
CLASSES = (0, 3, 8)


def split(rows: int, seed: int, data_dir: Path | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows to learn from with their labels, and test rows with theirs."""
    splits = cifar("cifar10", data_dir=data_dir)
    parts: list[Tensor] = []
    for data, count in ((splits.train, rows), (splits.test, None)):
        chosen = torch.isin(data.targets, torch.tensor(CLASSES)).nonzero().squeeze(1)
        order = torch.randperm(len(chosen), generator=torch.Generator().manual_seed(seed))[:count]
        labels = torch.searchsorted(torch.tensor(CLASSES), data.targets[chosen[order]])
        parts += [data.inputs[chosen[order]], labels]
    x, y, test_x, test_y = parts
    return x, y, test_x, test_y


def measure(rows: int, seed: int, data_dir: Path | None, device: str = "cpu") -> dict[str, list[float]]:
    """The scores of `sgpa.fit` and of the baselines."""
    data = split(rows, seed, data_dir)
    return fitted(*data, seed=seed, device=device) | baselines(*data)
