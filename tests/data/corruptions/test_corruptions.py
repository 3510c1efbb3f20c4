"""Corruptions against independent implementations: SciPy, Pillow, colorsys, loops over pixels."""

import colorsys
import io
import itertools
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from scipy import ndimage, stats
from torch import Tensor

from sgpa.core.errors import InputError
from sgpa.data import corruptions
from sgpa.data.corruptions import NAMES, SEVERITIES, TYPES, corrupt, filters, load, spatter, textures, weather
from sgpa.data.corruptions.draws import CHUNK, Draws
from sgpa.data.sources import find
from support.paths import DATA

RANDOM = set(TYPES) - {
    *("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"),
    *("gaussian_blur", "saturate"),
}
# Corruptions whose mean squared error does not grow with severity, with the reason.
NOT_MONOTONE = {
    "glass_blur": "2 and 3 blur more, which moves displaced pixels back; 4 starts again with little blur",
    "motion_blur": "3 and 4 have the same sigma and differ in taps whose weight is below 1e-9",
    "frost": "4 and 5 also darken the image, which offsets the bright frost",
    "elastic_transform": "the affine part, which moves most, shrinks while the displacement gets rougher",
    "spatter": "1 to 3 are bright water, 4 and 5 dark mud: which differs more depends on the images",
    "saturate": "1 and 2 take colour away, 3 to 5 add it",
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def images() -> Tensor:
    """60 test images of CIFAR-10, or smooth random ones, uint8 [60, 3, 32, 32]."""
    if any(DATA.glob("cifar10/test-*.parquet")):
        rows = pq.read_table(find("cifar10", "test", DATA)[0]).slice(0, 60)["img"].to_pylist()
        pixels = [np.asarray(Image.open(io.BytesIO(row["bytes"])).convert("RGB")) for row in rows]
        return torch.tensor(np.stack(pixels)).permute(0, 3, 1, 2).contiguous()
    noise = torch.randn(60, 3, 32, 32, generator=torch.Generator().manual_seed(0)).double()
    smooth = filters.gaussian(noise, 1.5) + 0.3 * filters.gaussian(noise.flip(0), 0.6)
    return (128 + 55 * smooth / smooth.std()).clamp(0, 255).to(torch.uint8)


@pytest.fixture
def draws():
    return lambda n, key="test": Draws(key, slice(0, n), torch.device("cpu"))


def error(a: Tensor, b: Tensor) -> float:
    return (a.double() - b.double()).square().mean().item()


def pixels(image: Tensor) -> np.ndarray:
    return image.permute(1, 2, 0).numpy()


def truncated(x: np.ndarray) -> np.ndarray:
    return (np.clip(x, 0, 1) * 255).astype(np.uint8)


def close(ours: Tensor, theirs: np.ndarray, share: float = 0.02) -> None:
    """Equal, except for one grey level where rounding errors decide at a whole number."""
    difference = np.abs(pixels(ours).astype(int) - theirs)
    assert difference.max() <= 1
    assert (difference > 0).mean() <= share


# Contracts


def test_number_of_corruptions() -> None:
    assert len(NAMES) == 15
    assert len(TYPES) == len(set(TYPES)) == 19


@pytest.mark.parametrize("name", TYPES)
def test_result_is_uint8_and_depends_on_the_seed(name: str, images: Tensor) -> None:
    part = images[:12]
    before = part.clone()
    for severity in SEVERITIES:
        out = corrupt(part, name, severity)
        assert out.shape == part.shape
        assert out.dtype == torch.uint8
        assert out.device == part.device
        assert torch.equal(part, before)
        assert torch.equal(out, corrupt(part, name, severity))
        changed = not torch.equal(out, corrupt(part, name, severity, seed=1))
        assert changed == (name in RANDOM)


@pytest.mark.parametrize("name", TYPES)
def test_result_does_not_depend_on_the_batch(name: str, images: Tensor) -> None:
    many = images[torch.arange(CHUNK + 7) % len(images)]
    whole = corrupt(many, name, 3)
    cuts = (0, 1, 30, CHUNK - 2, CHUNK + 3, CHUNK + 7)
    parts = [corrupt(many[a:b], name, 3, start=a) for a, b in itertools.pairwise(cuts)]
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(corrupt(many[:5], name, 3), whole[:5])


def test_result_does_not_depend_on_the_number_of_threads(images: Tensor) -> None:
    many = images[torch.arange(CHUNK + 7) % len(images)]
    expected = corrupt(many, "snow", 3)
    torch.set_num_threads(2)
    try:
        with torch.inference_mode():
            assert torch.equal(corrupt(many, "snow", 3), expected)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_images_severities_and_chunks_have_different_noise() -> None:
    grey = torch.full((CHUNK + 1, 3, 32, 32), 128, dtype=torch.uint8)
    out = corrupt(grey, "gaussian_noise", 1)
    assert not torch.equal(out[0], out[1])
    assert not torch.equal(out[0], out[CHUNK])
    scaled = (corrupt(grey[:1], "gaussian_noise", 2).double() - 127.5) * (0.04 / 0.06) + 127.5
    assert error(scaled, out[:1]) > 50


@pytest.mark.parametrize("name", TYPES)
def test_error_grows_with_severity(name: str, images: Tensor) -> None:
    errors = [error(corrupt(images, name, severity), images) for severity in SEVERITIES]
    assert min(errors) > 0
    rising = [a < b for a, b in itertools.pairwise(errors)]
    if name not in NOT_MONOTONE:
        assert all(rising)
    elif name == "glass_blur":
        assert rising[2]
        assert max(errors[:3]) < min(errors[3:])
    elif name == "motion_blur":
        assert rising[0]
        assert rising[1]
        assert max(errors[:3]) < errors[4]
    elif name == "frost":
        assert rising[0]
        assert rising[1]
    elif name == "spatter":
        assert rising[:2] == [True, True]
        assert rising[3]
    elif name == "elastic_transform":
        assert not any(rising)
    else:
        assert errors[0] < errors[1] > errors[2] < errors[3] < errors[4]


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("size", [8, 27, 64])
def test_other_sizes_and_flat_images(name: str, size: int) -> None:
    flat = torch.tensor([0, 255, 90], dtype=torch.uint8).view(3, 1, 1, 1).expand(-1, 3, size, size)
    for severity in (1, 5):
        assert corrupt(flat, name, severity).shape == flat.shape
    assert corrupt(flat[:0], name, 1).shape == (0, 3, size, size)


@pytest.mark.gpu
@pytest.mark.parametrize("name", TYPES)
def test_gpu_equals_cpu(name: str, images: Tensor) -> None:
    for severity in (1, 5):
        on_gpu = corrupt(images.cuda(), name, severity)
        assert on_gpu.is_cuda
        assert torch.equal(on_gpu, corrupt(images.cuda(), name, severity))
        on_cpu = corrupt(images, name, severity)
        if name not in RANDOM:
            assert (on_gpu.cpu().int() - on_cpu.int()).abs().max() <= 1
        assert error(on_gpu.cpu(), images) == pytest.approx(error(on_cpu, images), rel=0.25)


def test_bad_inputs_are_refused() -> None:
    good = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    for name, severity in (("mist", 1), ("fog", 0), ("fog", 6), ("fog", True), ("fog", "3")):
        with pytest.raises(InputError, match="is unknown; choose"):
            corrupt(good, name, severity)  # type: ignore[arg-type]
    for bad in (good.float(), good[:, :1], good[0], good[..., :16], good[..., :4, :4]):
        with pytest.raises(InputError, match=r"corrupt: images are .*; give") as caught:
            corrupt(bad, "fog", 1)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="start is -1"):
        corrupt(good, "fog", 1, start=-1)


# Files on disk


def test_load_reads_one_severity(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    np.save(tmp_path / "fog.npy", rows)
    for severity in SEVERITIES:
        out = load(tmp_path, "fog", severity, images=4)
        assert out.dtype == torch.uint8
        assert np.array_equal(out.permute(0, 2, 3, 1).numpy(), rows[4 * severity - 4 : 4 * severity])


def test_bad_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"fog\.npy is missing"):
        load(tmp_path, "fog", 1)
    with pytest.raises(InputError, match="is unknown"):
        load(tmp_path, "../fog", 1)
    np.save(tmp_path / "fog.npy", np.zeros((20, 32, 32, 3), dtype=np.uint8))
    with pytest.raises(InputError, match=r"expected uint8 \[50000, 32, 32, 3\]"):
        load(tmp_path, "fog", 1)
    np.save(tmp_path / "snow.npy", np.zeros((20, 32, 32, 3), dtype=np.float32))
    with pytest.raises(InputError, match="holds float32"):
        load(tmp_path, "snow", 1, images=4)
    np.save(tmp_path / "frost.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "contrast.npy").write_bytes(b"not an array")
    (tmp_path / "pixelate.npy").write_bytes(b"")
    for name in ("frost", "contrast", "pixelate"):
        with pytest.raises(InputError, match="not a plain"):
            load(tmp_path, name, 1)


# Against independent implementations


def test_noise_has_the_right_distribution(draws) -> None:
    x = torch.full((50, 3, 32, 32), 153 / 255, dtype=torch.float64)
    shot = corruptions.noise.shot_noise(x, draws(50), 50) * 50
    counts = np.bincount(shot.round().long().flatten().numpy(), minlength=80)[:80]
    expected = stats.poisson(30).pmf(np.arange(80)) * x.numel()
    keep = expected > 20
    assert (
        stats.chisquare(counts[keep], expected[keep] * counts[keep].sum() / expected[keep].sum()).pvalue
        > 1e-3
    )
    impulse = corruptions.noise.impulse_noise(x, draws(50), 0.07)
    for value in (0.0, 1.0):
        assert (impulse == value).double().mean().item() == pytest.approx(0.035, rel=0.05)
    assert (impulse[:, 0] == 0).ne(impulse[:, 1] == 0).any()  # channels are hit one by one


@pytest.mark.parametrize(("severity", "sigma"), [(1, 0.4), (2, 0.6), (3, 0.7), (4, 0.8), (5, 1.0)])
def test_gaussian_blur_is_scipys(severity: int, sigma: float, images: Tensor) -> None:
    out = corrupt(images[:5], "gaussian_blur", severity)
    for ours, image in zip(out, images, strict=False):
        theirs = ndimage.gaussian_filter(pixels(image) / 255, (sigma, sigma, 0), mode="nearest", truncate=4)
        close(ours, truncated(theirs))


@pytest.mark.parametrize("border", ["nearest", "mirror", "reflect"])
@pytest.mark.parametrize("size", [3, 8, 32])
def test_borders_are_scipys(border: filters.Border, size: int, draws) -> None:
    x = draws(2).normal(size, size).double()
    ours = filters.gaussian(x, 2.0, border)
    theirs = ndimage.gaussian_filter(x.numpy(), (0, 2, 2), mode=border)
    assert np.allclose(ours.numpy(), theirs, atol=1e-12)


@pytest.mark.parametrize(
    ("severity", "radius", "alias"), [(1, 0.3, 0.4), (2, 0.4, 0.5), (3, 0.5, 0.6), (4, 1, 0.2), (5, 1.5, 0.1)]
)
def test_defocus_is_a_convolution_with_a_disk(
    severity: int, radius: float, alias: float, images: Tensor
) -> None:
    i = np.arange(-8, 9)
    disk = (i[:, None] ** 2 + i**2 <= radius**2).astype(float)
    tap = np.exp(-np.array([1, 0, 1]) / (2 * alias**2))
    tap /= tap.sum()
    kernel = ndimage.convolve(disk / disk.sum(), np.outer(tap, tap), mode="constant").astype(np.float32)
    out = corrupt(images[:3], "defocus_blur", severity)
    for ours, image in zip(out, images, strict=False):
        theirs = ndimage.convolve(pixels(image) / 255, kernel.astype(float)[..., None], mode="mirror")
        close(ours, truncated(theirs))


def test_glass_blur_is_the_sequential_scan(images: Tensor, draws) -> None:
    for sigma, iterations in ((0.05, 1), (0.4, 2)):
        ours = corruptions.blur.glass_blur(images[:2].double() / 255, draws(2), sigma, 1, iterations)
        same = draws(2)
        offsets = [same.integers(-1, 1, 2, 32, 32).numpy() for _ in range(iterations)]
        for n in range(2):
            blur = (sigma, sigma, 0)
            x = (ndimage.gaussian_filter(pixels(images[n]) / 255, blur, mode="nearest") * 255).astype(
                np.uint8
            )
            for offset in offsets:
                for h in range(31, 1, -1):
                    for w in range(31, 1, -1):
                        dx, dy = offset[n, :, h, w]
                        x[h, w], x[h + dy, w + dx] = x[h + dy, w + dx], x[h, w]
            theirs = ndimage.gaussian_filter(x / 255, blur, mode="nearest")
            assert np.allclose(pixels(ours[n]), theirs, atol=1 / 255)
            assert np.isclose(pixels(ours[n]), theirs, atol=1e-9).mean() > 0.98


@pytest.mark.parametrize("angle", [-135.0, -90.0, -44.0, 0.0, 31.0])
def test_motion_blur_is_a_sum_along_a_line(angle: float, images: Tensor) -> None:
    x = images[:1].double() / 255
    ours = filters.motion(x, torch.tensor([angle]), 8, 3.0)[0]
    weights = np.exp(-(np.arange(17) ** 2) / 18)
    weights /= weights.sum()
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    padded = np.pad(pixels(images[0]).astype(float), ((17, 17), (17, 17), (0, 0)), mode="edge")
    theirs = np.zeros((32, 32, 3))
    for i, weight in enumerate(weights):
        row, column = 17 + math.ceil(i * sine - 0.5), 17 + math.ceil(i * cosine - 0.5)
        theirs += weight * padded[row : row + 32, column : column + 32]
    assert np.allclose(pixels(ours) * 255, np.floor(theirs + 0.5))


@pytest.mark.parametrize(("severity", "stop"), [(1, 1.06), (2, 1.11), (3, 1.16), (4, 1.21), (5, 1.26)])
def test_zoom_blur_averages_scipys_zooms(severity: int, stop: float, images: Tensor) -> None:
    x = pixels(images[0]) / 255
    factors = np.arange(1, stop, 0.01)
    total = x.copy()
    for factor in factors:
        side = math.ceil(32 / factor)
        top = (32 - side) // 2
        large = ndimage.zoom(x[top : top + side, top : top + side], (factor, factor, 1), order=1)
        trim = (len(large) - 32) // 2
        total += large[trim : trim + 32, trim : trim + 32]
    close(corrupt(images[:1], "zoom_blur", severity)[0], truncated(total / (len(factors) + 1)))


@pytest.mark.parametrize(
    ("name", "severity"), [("brightness", 1), ("brightness", 5), *[("saturate", s) for s in SEVERITIES]]
)
def test_hsv_is_colorsys(name: str, severity: int, images: Tensor) -> None:
    image = images[:1].clone()
    image[0, :, 0, :3] = torch.tensor([[0, 255, 77]] * 3, dtype=torch.uint8)  # black, white and grey

    def change(rgb: np.ndarray) -> tuple[float, float, float]:
        h, s, v = colorsys.rgb_to_hsv(*(rgb / 255))
        if name == "brightness":
            return colorsys.hsv_to_rgb(h, s, min(1, v + {1: 0.05, 5: 0.3}[severity]))
        multiply, add = [(0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)][severity - 1]
        return colorsys.hsv_to_rgb(h, min(1, max(0, s * multiply + add)), v)

    theirs = np.apply_along_axis(change, 2, pixels(image[0]))
    close(corrupt(image, name, severity)[0], truncated(theirs), share=0.05)


def test_contrast_scales_around_the_mean(images: Tensor) -> None:
    x = pixels(images[0]) / 255
    mean = x.mean((0, 1))
    close(corrupt(images[:1], "contrast", 5)[0], truncated((x - mean) * 0.15 + mean))


@pytest.mark.parametrize(("severity", "side"), [(1, 30), (2, 28), (3, 27), (4, 24), (5, 20)])
def test_pixelate_is_pillows_box_filter(severity: int, side: int, images: Tensor) -> None:
    for ours, image in zip(corrupt(images[:10], "pixelate", severity), images, strict=False):
        small = Image.fromarray(pixels(image)).resize((side, side), Image.Resampling.BOX)
        assert np.array_equal(pixels(ours), np.asarray(small.resize((32, 32), Image.Resampling.BOX)))


def test_jpeg_is_pillows(images: Tensor) -> None:
    file = io.BytesIO()
    Image.fromarray(pixels(images[1])).save(file, "JPEG", quality=40)
    assert np.array_equal(pixels(corrupt(images[:2], "jpeg_compression", 5)[1]), np.asarray(Image.open(file)))


def test_elastic_transform_is_scipys_map(images: Tensor, draws) -> None:
    x = images[:1].double() / 255
    ours = corruptions.digital.elastic_transform(x, draws(1), 0.08, 0.06, 0.06)[0]
    same = draws(1)
    before = np.array([[26.0, 26.0], [26.0, 6.0], [6.0, 6.0]])
    after = before + 0.06 * 32 * same.uniform(3, 2, low=-1, high=1)[0].double().numpy()
    affine = np.linalg.solve(np.c_[after, np.ones(3)], before)
    ys, xs = np.mgrid[:32, :32].astype(float)
    at = np.stack([xs, ys, np.ones_like(xs)], -1) @ affine
    warp = [
        ndimage.map_coordinates(channel, (at[..., 1], at[..., 0]), order=1, mode="mirror")
        for channel in x[0].numpy()
    ]
    noise = same.uniform(2, 32, 32, low=-1, high=1)[0].double().numpy()
    dx, dy = (ndimage.gaussian_filter(part, 1.92, mode="reflect", truncate=3) * 2.56 for part in noise)
    theirs = [
        ndimage.map_coordinates(channel, (ys + dy, xs + dx), order=1, mode="reflect") for channel in warp
    ]
    # the affine map's coordinates are rounded to 1/32 pixel
    assert np.abs(ours.numpy() - np.stack(theirs)).max() < 0.05
    assert np.abs(ours.numpy() - np.stack(theirs)).mean() < 0.004


def test_fog_is_periodic_plasma(draws) -> None:
    cloud = weather.plasma(torch.zeros(20, 32, 32, dtype=torch.float64), draws(20), 3.0)
    assert cloud.amin((1, 2)).eq(0).all()
    assert cloud.amax((1, 2)).eq(1).all()
    seam = (cloud[:, 0] - cloud[:, -1]).abs().mean()
    inside = (cloud[:, 1:] - cloud[:, :-1]).abs().mean()
    assert seam < 1.5 * inside


def test_snow_is_symmetric_on_black() -> None:
    black = torch.zeros(20, 3, 32, 32, dtype=torch.uint8)
    out = corrupt(black, "snow", 4).int()
    assert torch.equal(out, out.flip(-1, -2))
    assert (out == int(0.15 * 0.5 * 255)).any()  # whitened, where no flake fell


def test_spatter_chamfer_is_a_distance(draws) -> None:
    edges = draws(20).uniform(32, 32) < 0.02
    edges[0] = False
    ours = spatter.chamfer(edges)
    assert (ours[0] == spatter.FARTHEST).all()
    for n in range(1, 20):
        exact = ndimage.distance_transform_edt(~edges[n].numpy())
        assert np.abs(ours[n].numpy() / np.maximum(exact, 1) - (exact > 0)).max() < 0.05


def test_spatter_edges_outline_a_square() -> None:
    layer = torch.zeros(1, 32, 32, dtype=torch.int32)
    layer[0, 8:20, 10:24] = 200
    edges = spatter.canny(layer)[0]
    rows, columns = edges.nonzero().unbind(1)
    assert 40 <= len(rows) <= 56  # about one pixel wide
    outline = ndimage.binary_dilation(layer[0].numpy() > 0) & ~ndimage.binary_erosion(layer[0].numpy() > 0)
    assert outline[rows, columns].all()
    faint = torch.where(layer > 0, 20, 0).int()
    assert not spatter.canny(faint).any()


def test_spatter_equalises_histograms() -> None:
    layer = torch.tensor([[[3, 3, 5, 9], [9, 9, 9, 5]], [[7, 7, 7, 7], [7, 7, 7, 7]]])
    expected = [[[0, 0, 85, 255], [255, 255, 255, 85]], [[7, 7, 7, 7], [7, 7, 7, 7]]]
    assert spatter.equalised(layer).tolist() == expected


# Frost


def test_frost_without_photographs(monkeypatch: pytest.MonkeyPatch, images: Tensor) -> None:
    monkeypatch.setattr(textures, "PACKAGE", "no_such_package")
    assert corruptions.frost_source() == "procedural"
    sheets = textures.frost_textures("procedural")
    assert len(sheets) == 5
    for sheet, (colour, _) in zip(sheets, textures.LOOKS, strict=True):
        assert torch.allclose(sheet.mean((1, 2)), torch.tensor(colour).double(), atol=6)
        assert sheet.mean(0).std() > 10
    assert error(corrupt(images, "frost", 2), images) > 500


def test_frost_reads_photographs_without_importing_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: Tensor
) -> None:
    package = tmp_path / "frost_photographs"
    (package / "frost").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('must not be imported')")
    rng = np.random.default_rng(0)
    for name in textures.PHOTOGRAPHS:
        Image.fromarray(rng.integers(0, 256, (200, 230, 3), dtype=np.uint8)).save(package / "frost" / name)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(textures, "PACKAGE", "frost_photographs")
    textures.frost_textures.cache_clear()
    try:
        assert corruptions.frost_source() == "photographs"
        sheet = textures.frost_textures("photographs")[0]
        assert sheet.shape == (3, 40, 46)
        whole = np.asarray(Image.open(package / "frost" / "frost1.png"))
        assert np.array_equal(pixels(sheet), whole[2::5, 2::5])
        black = torch.zeros_like(images)
        assert set(corrupt(black, "frost", 1).unique().tolist()) == set(range(52))  # 0.2 t, cut off
    finally:
        textures.frost_textures.cache_clear()
