"""The 19 corruptions of CIFAR-C at five severities: regenerated, or read from the published files.

docs/corruptions.md compares them with the original and lists timings.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sgpa.core.errors import InputError
from sgpa.data.corruptions import blur, digital, noise, spatter, weather
from sgpa.data.corruptions.draws import Draws, chunks
from sgpa.data.corruptions.textures import frost_source

__all__ = ["EXTRA", "NAMES", "REGENERATED", "SEVERITIES", "TYPES", "corrupt", "frost_source", "load"]

Corruption = Callable[..., Tensor]  # images in [0, 1], their random numbers, the constants of a severity
Constants = tuple[tuple[float, ...], ...]  # one row per severity

SEVERITIES = (1, 2, 3, 4, 5)
REGENERATED = "regenerated"  # name in tables of sets made by `corrupt`

STANDARD: dict[str, tuple[Corruption, Constants]] = {
    "gaussian_noise": (noise.gaussian_noise, ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,))),
    "shot_noise": (noise.shot_noise, ((500,), (250,), (100,), (75,), (50,))),
    "impulse_noise": (noise.impulse_noise, ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,))),
    "defocus_blur": (blur.defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    "glass_blur": (
        blur.glass_blur,
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    ),
    "motion_blur": (blur.motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "zoom_blur": (blur.zoom_blur, ((1.06,), (1.11,), (1.15,), (1.20,), (1.25,))),
    "snow": (
        weather.snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    "frost": (weather.frost, ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
    "fog": (weather.fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "brightness": (weather.brightness, ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,))),
    "contrast": (digital.contrast, ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,))),
    "elastic_transform": (
        digital.elastic_transform,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    ),
    "pixelate": (digital.pixelate, ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,))),
    "jpeg_compression": (digital.jpeg_compression, ((80,), (65,), (58,), (50,), (40,))),
}
ADDED: dict[str, tuple[Corruption, Constants]] = {
    "speckle_noise": (noise.speckle_noise, ((0.06,), (0.1,), (0.12,), (0.16,), (0.2,))),
    "gaussian_blur": (blur.gaussian_blur, ((0.4,), (0.6,), (0.7,), (0.8,), (1,))),
    "spatter": (
        spatter.spatter,
        (
            (0.62, 0.1, 0.7, 0.7, 0.5, 0),
            (0.65, 0.1, 0.8, 0.7, 0.5, 0),
            (0.65, 0.3, 1, 0.69, 0.5, 0),
            (0.65, 0.1, 0.7, 0.69, 0.6, 1),
            (0.65, 0.1, 0.5, 0.68, 0.6, 1),
        ),
    ),
    "saturate": (digital.saturate, ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))),
}
CORRUPTIONS = STANDARD | ADDED
NAMES = tuple(STANDARD)  # the 15 over which robustness is averaged
EXTRA = tuple(ADDED)
TYPES = NAMES + EXTRA


def corrupt(images: Tensor, name: str, severity: int, seed: int = 0, start: int = 0) -> Tensor:
    """Corrupted copies of images.

    The result for an image depends on its pixels, its number, the corruption, the severity, the seed and the
    type of device, not on the other images: corrupting a set in parts, each with its `start`, equals
    corrupting it at once.

    Args:
        images: Square images [N, 3, h, h] uint8, 8 pixels or more a side.
        name: One of `TYPES`.
        severity: 1 (weak) to 5 (strong).
        seed: Random seed.
        start: Number of the first image in its set.

    Returns:
        Images of the same shape, uint8, on the same device.

    Example:
        >>> corrupt(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), "fog", severity=3).shape
        torch.Size([2, 3, 32, 32])
    """
    _check(name, severity)
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        raise InputError(f"corrupt: images are {images.dtype} {list(images.shape)}; give uint8 [N, 3, h, h]")
    if images.shape[2] != images.shape[3] or images.shape[2] < 8:
        raise InputError(
            f"corrupt: images are {list(images.shape[2:])}; give square ones of 8 pixels or more"
        )
    if start < 0:
        raise InputError(f"corrupt: start is {start}; give the number of the first image, 0 or more")
    function, constants = CORRUPTIONS[name]

    def one(piece: tuple[slice, Draws]) -> Tensor:
        rows, draws = piece
        # float64, as the original: in float32 a GPU may round matrix products to ten bits
        y = function(images[rows].double() / 255, draws, *constants[severity - 1])
        return (y.clamp(0, 1) * 255).to(torch.uint8)

    pieces = list(chunks(start, len(images), f"{seed}/{name}/{severity}", images.device))
    if not pieces:
        return images.clone()
    if images.device.type != "cpu":
        return torch.cat([one(piece) for piece in pieces])
    # One thread per chunk, not several per operation: threads that synchronise after every small operation
    # are more than ten times slower as soon as another process uses a core.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            return torch.cat(list(pool.map(one, pieces)))
    finally:
        torch.set_num_threads(threads)


def load(directory: Path, name: str, severity: int, images: int = 10_000) -> Tensor:
    """One severity of a corrupted set on disk.

    Args:
        directory: Folder with `<name>.npy`, uint8 [5 N, 32, 32, 3], all of severity 1 first.
        name: One of `TYPES`.
        severity: 1 to 5.
        images: N, the number of images of the set.

    Returns:
        Images [N, 3, 32, 32] uint8.
    """
    _check(name, severity)
    path = Path(directory) / f"{name}.npy"
    if not path.is_file():
        raise InputError(f"{path} is missing; unpack CIFAR-10-C or CIFAR-100-C there, or use `corrupt`")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise InputError(f"{path} is not a plain .npy array ({error}); download it again") from error
    expected = (len(SEVERITIES) * images, 32, 32, 3)
    if array.dtype != np.uint8 or array.shape != expected:
        raise InputError(f"{path} holds {array.dtype} {list(array.shape)}; expected uint8 {list(expected)}")
    rows = array[(severity - 1) * images : severity * images]
    return torch.from_numpy(np.ascontiguousarray(rows.transpose(0, 3, 1, 2)))


def _check(name: str, severity: int) -> None:
    if name not in CORRUPTIONS:
        raise InputError(f"corruption {name!r} is unknown; choose one of {', '.join(TYPES)}")
    if isinstance(severity, bool) or severity not in SEVERITIES:
        raise InputError(f"severity {severity!r} is unknown; choose 1 (weak) to 5 (strong)")
