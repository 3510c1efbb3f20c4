"""Image files and folders of images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from sgpa.core.arguments import checked
from sgpa.core.errors import InputError, check_fields
from sgpa.core.inputs import Inputs
from sgpa.data.images.digits import normalise
from sgpa.data.images.folder import files_below, read_images, square_pixels
from sgpa.inference.readers.base import Reader, Rows, existing

LARGEST = 4096  # pixels of a side
GREY = (0.299, 0.587, 0.114)  # luminance of red, green and blue


@checked
@dataclass(frozen=True, kw_only=True)
class ImageReader(Reader):
    """Images cut to centred squares of `size` pixels; `grey` ones are floats in [-1, 1].

    Example:
        >>> ImageReader(size=32).read([Path("photos")]).inputs.shape  # doctest: +SKIP
        torch.Size([12, 3, 32, 32])
    """

    size: int = 32
    grey: bool = False

    kind: ClassVar[str] = "images"

    def __post_init__(self) -> None:
        check_fields("images", [("size", self.size, 1 <= self.size <= LARGEST, f"1 to {LARGEST}")])

    def read(self, files: Sequence[Path], texts: Sequence[str] = (), column: str | None = None) -> Rows:
        """Image files, and all images below folders."""
        images = image_files(files, texts, column)
        return Rows(self._inputs(read_images(images, self.size)), [{"file": str(file)} for file in images])

    def read_pictures(self, pictures: Sequence[Image.Image]) -> Rows:
        """Images in memory."""
        pixels = []
        for row, picture in enumerate(pictures, 1):
            try:
                pixels.append(square_pixels(picture, self.size))
            except (OSError, ValueError) as error:
                raise InputError(f"image {row} cannot be read ({error})") from None
        return Rows(self._inputs(np.stack(pixels)), [{"row": i} for i in range(1, len(pictures) + 1)])

    def _inputs(self, pixels: NDArray[np.uint8]) -> Inputs:
        """What the model reads, from pixels [N, size, size, 3]."""
        x = torch.from_numpy(pixels).permute(0, 3, 1, 2)  # [N, 3, size, size]
        if self.grey:
            weights = torch.tensor(GREY).view(3, 1, 1)
            x = normalise((x * weights).sum(1, keepdim=True).div(255))  # [N, 1, size, size]
        return x.contiguous()


def image_files(files: Sequence[Path], texts: Sequence[str], column: str | None) -> list[Path]:
    """Image files, and all images below folders; raises where there is none."""
    if texts or column is not None:
        raise InputError("this model reads images; name image files or folders, not texts or columns")
    images = [file for path in existing(files) for file in (files_below(path) if path.is_dir() else [path])]
    if not images:
        named = ", ".join(map(str, files))
        raise InputError(f"no image in {named}" if files else "nothing to predict: name images or folders")
    return images
