"""Augmentation of a user's own images."""

import pytest
import torch

from sgpa.core.errors import InputError
from sgpa.data.images import digits
from sgpa.data.images.augmentation import (
    ShiftAndFlip,
    SmallAffine,
    ThreeAugment,
    augmentation_for,
    recognised_as_well,
)


def generator():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_images_are_shifted_and_mirrored(dtype):
    image = torch.arange(16 * 16).view(1, 1, 16, 16).to(dtype)
    many = image.expand(200, -1, -1, -1)
    shifted = ShiftAndFlip(shift=2, flips=False)(many, generator())
    assert shifted.dtype == dtype
    assert shifted.shape == many.shape
    centres = {int(row[0, 8, 8]) for row in shifted}
    assert centres == {int(image[0, 0, 8 + i, 8 + j]) for i in range(-2, 3) for j in range(-2, 3)}
    mirrored = ShiftAndFlip(shift=0, flips=True)(many, generator())
    same = (mirrored == many).flatten(1).all(1)
    assert 60 < int(same.sum()) < 140
    assert torch.equal(mirrored[~same], many[~same].flip(3))


def test_the_same_generator_gives_the_same_images():
    images = torch.rand(8, 3, 16, 16)
    augment = ShiftAndFlip(shift=2, flips=True)
    assert torch.equal(augment(images, generator()), augment(images, generator()))
    with pytest.raises(InputError, match="takes images"):
        augment(torch.zeros(3, 4), generator())


def test_digits_are_not_mirrored():
    data = digits.load().train
    assert not recognised_as_well(data.inputs, data.targets, lambda x: x.flip(3))
    larger = torch.nn.functional.interpolate(data.inputs, scale_factor=2)
    assert augmentation_for(larger, data.targets) == ShiftAndFlip(shift=2, flips=False)


def test_textures_are_mirrored():
    torch.manual_seed(0)
    y = torch.arange(100) % 2
    x = torch.rand(100, 3, 32, 32) * (0.4 + 0.6 * y.view(-1, 1, 1, 1))
    assert augmentation_for(x, y) == ShiftAndFlip(shift=4, flips=True)


def test_photographs_get_three_augment_unless_colour_is_their_class():
    torch.manual_seed(0)
    y = torch.arange(100) % 2
    stripes = 128 + 100 * (torch.arange(32) // (4 + 4 * y.view(-1, 1)) % 2).view(-1, 1, 32, 1)
    grey = (stripes + torch.randint(-20, 20, (100, 3, 32, 32))).clamp(0, 255).byte()
    assert augmentation_for(grey, y) == ThreeAugment()
    red = torch.tensor([160, 60, 60]).view(3, 1, 1)
    colour = torch.where(y.view(-1, 1, 1, 1) == 0, red, red.flip(0)) + torch.randint(0, 40, (100, 3, 32, 32))
    assert augmentation_for(colour.byte(), y) == ShiftAndFlip(shift=4, flips=True)
    assert ThreeAugment()(grey, generator()).shape == grey.shape


def test_values_and_tokens_have_no_flips():
    y = torch.arange(20) % 2
    assert augmentation_for(torch.randint(5, (20, 7)), y) is None
    assert augmentation_for(torch.rand(20, 1, 16, 16), y.float()) == ShiftAndFlip(shift=2, flips=False)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_small_images_are_moved_by_parts_of_a_pixel(dtype):
    image = (torch.arange(8).view(1, 1, 1, 8) * 20.0).expand(100, 1, 8, 8).to(dtype)  # a ramp to the right
    moved = SmallAffine(shift=0.1, degrees=0.0, scale=0.0)(image, generator())
    assert moved.dtype == dtype
    shift = (moved.float() - image.float())[:, 0, 4, 3] / 20  # of a ramp: pixels to the left
    assert float(shift.abs().max()) <= 0.8 + 0.03
    assert float(shift.std()) > 0.3
    turned = SmallAffine(shift=0.0, degrees=10.0, scale=0.1)(image, generator())
    assert not torch.equal(turned, image)
    same = SmallAffine(shift=0.0, degrees=0.0, scale=0.0)(image, generator())
    assert torch.allclose(same.float(), image.float(), atol=1e-3)
    with pytest.raises(InputError, match="takes images"):
        SmallAffine()(torch.zeros(3, 4), generator())


def test_small_digits_get_the_affine_maps_and_targets_that_are_values_do_not():
    data = digits.load().train
    assert augmentation_for(data.inputs, data.targets) == SmallAffine()
    assert augmentation_for(data.inputs, data.targets.float()) is None
