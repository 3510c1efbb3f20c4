"""The digits that ship with the package equal those of scikit-learn, bit by bit."""

import hashlib

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_sample_images

from sgpa.core.errors import ConfigError
from sgpa.core.files import digest
from sgpa.data.images import digits

PHOTOGRAPHS = "99310b92a8963a4b"  # of the decoded pixels


def test_images_and_labels_equal_scikit_learns():
    expected = load_digits()
    images = torch.tensor(expected.images, dtype=torch.float32).div(16).unsqueeze(1) * 2 - 1
    order = torch.randperm(1797, generator=torch.Generator().manual_seed(0))
    splits = digits.load(300, 200)
    parts = (splits.train, splits.validation, splits.test)
    assert [len(part) for part in parts] == [300, 200, 1297]
    assert torch.equal(torch.cat([part.inputs for part in parts]), images[order])
    assert torch.equal(torch.cat([part.targets for part in parts]), torch.tensor(expected.target)[order])


def test_photo_patches_equal_random_patches_of_scikit_learns_photographs():
    images = load_sample_images().images
    if hashlib.sha256(b"".join(image.tobytes() for image in images)).hexdigest()[:16] != PHOTOGRAPHS:
        pytest.skip("this JPEG decoder gives other pixels")
    rng = np.random.default_rng(0)
    photos = [image.astype(np.float32).mean(-1) for image in images]
    patches = []
    while len(patches) < digits.PATCHES:
        photo = photos[len(patches) % 2]
        row, column = (int(rng.integers(0, side - 8)) for side in photo.shape)
        patch = photo[row : row + 8, column : column + 8]
        if np.ptp(patch) > 32:
            patches.append((patch - patch.min()) / np.ptp(patch))
    expected = torch.tensor(np.stack(patches)).unsqueeze(1) * 2 - 1
    assert torch.equal(digits.photo_patches(), expected)


def test_tensors_are_the_same_on_every_machine():
    splits = digits.load()
    assert (
        digest(torch.cat([splits.train.inputs, splits.validation.inputs, splits.test.inputs]))
        == "3f752a6ac2fe77de"
    )
    assert digest(digits.photo_patches()) == "9c1ac8cf811a81df"
    assert torch.equal(digits.photo_patches(7), digits.photo_patches()[:7])


@pytest.mark.parametrize("count", [0, 1001])
def test_number_of_photo_patches_is_limited(count):
    with pytest.raises(ConfigError, match=rf"count={count} \(allowed: 1..1000\)"):
        digits.photo_patches(count)
