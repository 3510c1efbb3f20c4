"""3-Augment against Pillow, image by image."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from sklearn.datasets import load_sample_images
from torch import Tensor
from torch.nn.functional import pad

from sgpa.core.errors import InputError
from sgpa.core.inputs import Graphs
from sgpa.data.images import augment
from sgpa.data.images.augment import PADDING, Draw, apply, draw, three_augment

COUNT = 30_000


def photos(count: int = 200, h: int = 32, w: int = 32) -> Tensor:
    """Patches of two photographs, and pure noise every tenth time."""
    rng = np.random.default_rng(0)
    sources = load_sample_images().images
    patches = []
    for i in range(count):
        source = sources[i % 2]
        top, left = rng.integers(0, source.shape[0] - h), rng.integers(0, source.shape[1] - w)
        noise = rng.integers(0, 256, (h, w, 3), dtype=np.uint8)
        patches.append(noise if i % 10 == 9 else source[top : top + h, left : left + w])
    return torch.from_numpy(np.stack(patches)).permute(0, 3, 1, 2).contiguous()


def each(images: Tensor, change: Callable[..., Image.Image], *parameters: Tensor) -> Tensor:
    """Every image changed by Pillow."""
    rows = zip(images, *(p.tolist() for p in parameters), strict=True)
    out = [np.asarray(change(Image.fromarray(x.permute(1, 2, 0).numpy()), *p)) for x, *p in rows]
    return torch.from_numpy(np.stack(out)).permute(0, 3, 1, 2)


def spread(low: float, high: float, count: int = 200) -> Tensor:
    return torch.linspace(low, high, count)[torch.randperm(count, generator=torch.Generator().manual_seed(1))]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- single operations


@pytest.mark.parametrize("size", [(32, 32), (17, 40)])
def test_grayscale_equals_pillows(size):
    images = photos(200, *size)
    assert torch.equal(
        augment.grayscale(images), each(images, lambda x: ImageOps.grayscale(x).convert("RGB"))
    )


def test_solarize_equals_pillows():
    images = photos()
    assert torch.equal(augment.solarize(images), each(images, ImageOps.solarize))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (augment.brightness, ImageEnhance.Brightness),
        (augment.contrast, ImageEnhance.Contrast),
        (augment.saturation, ImageEnhance.Color),
    ],
)
@pytest.mark.parametrize(("low", "high"), [(0.7, 1.3), (0.0, 3.0)])
def test_jitter_equals_pillows(ours, theirs, low, high):
    """One level of 255 is allowed, for machines that fuse multiply and add."""
    images, factor = photos(), spread(low, high)
    expected = each(images, lambda x, f: theirs(x).enhance(f), factor)
    difference = (ours(images, factor).int() - expected.int()).abs()
    assert difference.max() <= 1
    assert difference.float().mean() < 1e-3


@pytest.mark.parametrize("size", [(32, 32), (17, 40)])
def test_blur_equals_pillows_to_one_level(size):
    """Pillow uses three box filters a direction, rounded after each, in 24-bit fixed point."""
    images, radius = photos(200, *size), spread(*augment.BLUR)
    expected = each(images, lambda x, r: x.filter(ImageFilter.GaussianBlur(r)), radius)
    difference = (augment.gaussian_blur(images, radius).int() - expected.int()).abs()
    assert difference.max() <= 1
    assert difference.float().mean() < 1e-3


def test_blur_keeps_a_constant_image_and_the_mean():
    plain = torch.full((3, 3, 32, 32), 200, dtype=torch.uint8)
    assert torch.equal(augment.gaussian_blur(plain, torch.tensor([0.1, 1.0, 2.0])), plain)
    spot = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    spot[:, :, 14:18, 14:18] = 255
    blurred = augment.gaussian_blur(spot, torch.tensor([2.0])).float()
    assert blurred.mean().item() == pytest.approx(spot.float().mean().item(), rel=0.02)


def test_crop_is_a_window_of_the_reflected_image():
    images = photos(81, 32, 24)
    top, left = torch.arange(81) // 9, torch.arange(81) % 9
    padded = pad(images.float(), (PADDING,) * 4, mode="reflect").to(torch.uint8)
    expected = [padded[i, :, i // 9 : i // 9 + 32, i % 9 : i % 9 + 24] for i in range(81)]
    assert torch.equal(augment.crop(images, top, left), torch.stack(expected))


def test_flip_equals_pillows():
    images = photos(2)
    flipped = augment.flip(images, torch.tensor([True, False]))
    assert torch.equal(flipped[:1], each(images[:1], ImageOps.mirror))
    assert torch.equal(flipped[1:], images[1:])


def test_all_operations_of_a_draw_equal_pillows():
    """All steps of one draw, in its order of jitters."""
    images, drawn = photos(), draw(200, seeded())
    effects = [
        lambda x, _: ImageOps.grayscale(x).convert("RGB"),
        lambda x, _: ImageOps.solarize(x),
        lambda x, r: x.filter(ImageFilter.GaussianBlur(r)),
    ]
    jitters = [ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color]

    def chain(x: Image.Image, i: int) -> Image.Image:
        padded = Image.fromarray(np.pad(np.asarray(x), ((4, 4), (4, 4), (0, 0)), mode="reflect"))
        top, left = int(drawn.top[i]), int(drawn.left[i])
        x = padded.crop((left, top, left + 32, top + 32))
        x = ImageOps.mirror(x) if drawn.flipped[i] else x
        x = effects[int(drawn.effect[i])](x, float(drawn.radius[i]))
        for step in drawn.order[i].tolist():
            x = jitters[step](x).enhance(float(drawn.factors[i, step]))
        return x

    difference = (apply(images, drawn).int() - each(images, chain, torch.arange(200)).int()).abs()
    assert difference.max() <= 3  # one level of the blur, through three jitters of up to 1.3
    assert difference.float().mean() < 1e-2


# --- random parameters


@pytest.fixture(scope="module")
def drawn() -> Draw:
    return draw(COUNT, seeded())


def near(counts: Tensor, probability: float) -> bool:
    """Within five standard deviations of a binomial count."""
    sigma = (COUNT * probability * (1 - probability)) ** 0.5
    return bool(((counts.double() - COUNT * probability).abs() < 5 * sigma).all())


def test_probabilities_of_parameters(drawn):
    assert near(drawn.flipped.sum(), 1 / 2)
    assert near(drawn.effect.bincount(minlength=3), 1 / 3)
    assert near(drawn.top.bincount(minlength=9), 1 / 9)
    assert near(drawn.left.bincount(minlength=9), 1 / 9)
    assert drawn.top.max() == drawn.left.max() == 2 * PADDING
    orders = (drawn.order * torch.tensor([9, 3, 1])).sum(1).unique(return_counts=True)[1]
    assert len(orders) == 6
    assert near(orders, 1 / 6)


def test_ranges_and_independence_of_parameters(drawn):
    uniforms = [(drawn.radius, 0.1, 2.0), *((drawn.factors[:, i], 0.7, 1.3) for i in range(3))]
    for values, low, high in uniforms:
        assert low <= values.min() < low + 0.001 * (high - low) + 1e-6
        assert high - 0.001 * (high - low) - 1e-6 < values.max() <= high
        assert near(((values - low) / (high - low) < 0.25).sum(), 1 / 4)
    everything = [drawn.top, drawn.left, drawn.flipped, drawn.effect, drawn.radius, *drawn.factors.T]
    correlation = torch.corrcoef(torch.stack([column.double() for column in everything]))
    assert (correlation - torch.eye(len(everything))).abs().max() < 5 / COUNT**0.5


def test_exactly_one_effect_is_applied():
    images = photos(300)
    neutral = {"top": torch.full((300,), 4), "left": torch.full((300,), 4)}
    still = {"flipped": torch.zeros(300, dtype=torch.bool), "factors": torch.ones(300, 3)}
    effect, radius = torch.arange(300) % 3, spread(0.1, 2.0, 300)
    drawn = Draw(**neutral, **still, effect=effect, radius=radius, order=torch.arange(3).expand(300, 3))
    changed = apply(images, drawn)
    alone = (augment.grayscale(images), augment.solarize(images), augment.gaussian_blur(images, radius))
    for kind, expected in enumerate(alone):
        assert torch.equal(changed[effect == kind], expected[effect == kind])


# --- three_augment


def test_result_depends_on_the_seed():
    images = photos(50)
    before = images.clone()
    first, again, other = (three_augment(images, seeded(s)) for s in (0, 0, 1))
    assert torch.equal(images, before), "the input is not changed"
    assert (first.dtype, first.shape) == (torch.uint8, images.shape)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_one_image_and_no_image():
    assert three_augment(photos(1), seeded()).shape == (1, 3, 32, 32)
    assert three_augment(photos(1)[:0], seeded()).shape == (0, 3, 32, 32)


INTEGERS = torch.zeros(1, 1, dtype=torch.long)
GRAPHS = Graphs(INTEGERS, torch.zeros(1, 1, 2, dtype=torch.long), INTEGERS, torch.zeros(1, 1, 1))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (torch.rand(2, 3, 32, 32), r"got torch.float32 \[2, 3, 32, 32\]"),
        (torch.zeros(2, 5, 32, 32, dtype=torch.uint8), r"\[2, 5, 32, 32\]"),
        (torch.zeros(3, 32, 32, dtype=torch.uint8), r"\[3, 32, 32\]"),
        (torch.zeros(2, 3, 1, 1, dtype=torch.uint8), r"images of \[1, 1\] are too small"),
        (GRAPHS, "got Graphs"),
    ],
)
def test_other_inputs_are_refused(bad, message):
    with pytest.raises(InputError, match=message):
        three_augment(bad, seeded())


@pytest.mark.gpu
def test_gpu_equals_cpu():
    images, drawn = photos(), draw(200, seeded())
    moved = Draw(**{name: getattr(drawn, name).cuda() for name in drawn.__dataclass_fields__})
    difference = (apply(images.cuda(), moved).cpu().int() - apply(images, drawn).int()).abs()
    assert difference.max() <= 3
    assert three_augment(images.cuda(), torch.Generator("cuda").manual_seed(0)).is_cuda
