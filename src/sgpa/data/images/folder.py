"""A user's images: a folder with one sub-folder per class."""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from sgpa.core.errors import InputError, first_of
from sgpa.core.files import check_file_name
from sgpa.data.fetch import Progress

log = logging.getLogger(__name__)

NOT_IMAGES = frozenset({"thumbs.db", "desktop.ini", "__macosx"})  # written by file managers
SPLITS = frozenset({"train", "training", "test", "testing", "val", "valid", "validation"})
DARK = 256  # values of sixteen bits below which all are black in eight
SHADES = 16  # of 256, that twelve bits in sixteen are read as
CHUNK = 256  # images decoded between two calls of `progress`


@dataclass(frozen=True)
class Listing:
    """Image files with their labels: classes in alphabetical order, files of a class by their paths."""

    files: list[Path]
    labels: list[int]
    classes: list[str]


def image_folder(directory: Path | str, size: int = 32) -> tuple[Tensor, Tensor, list[str]]:
    """Images of a folder with one sub-folder per class, in any format Pillow reads.

    Images are rotated according to their EXIF data, cut to the centred square and resized. Grey images get
    three equal channels, transparent ones a white background, of several frames or pages the first is read.
    Hidden files, files with the ending of another
    format and everything that is not a regular file are skipped.

    Args:
        directory: The folder, with files such as `photos/cat/1.jpg` and `photos/dog/a.png`.
        size: Width and height of the result in pixels.

    Returns:
        Images [N, 3, size, size] uint8, labels [N] int64 and the class names.

    Raises:
        InputError: There is no class folder, a class has no image, or an image cannot be read.

    Example:
        >>> images, labels, classes = image_folder("photos", size=32)  # doctest: +SKIP
    """
    if size < 1:
        raise InputError(f"size={size} (allowed: 1 or more)")
    listed = list_images(Path(directory))
    pixels = torch.from_numpy(read_images(listed.files, size))  # [N, size, size, 3]
    return pixels.permute(0, 3, 1, 2).contiguous(), torch.tensor(listed.labels), listed.classes


def list_images(directory: Path) -> Listing:
    """All files that are not hidden, class by class, at any depth below the folder of the class."""
    if not directory.is_dir():
        raise InputError(
            f"{directory} is not a folder; name a folder with one sub-folder of images per class"
        )
    folders = sorted(f for f in directory.iterdir() if f.is_dir() and _shown(Path(f.name)))
    if not folders:
        raise InputError(
            f"{directory} has no class folders; put the images of each class into a sub-folder of it"
        )
    _refuse_splits(directory, folders)
    stray = [f.name for f in sorted(directory.iterdir()) if f.is_file() and _shown(Path(f.name))]
    _warn_of_skipped(directory, tuple(stray), "outside the class folders")
    files: list[Path] = []
    labels: list[int] = []
    others: list[str] = []
    for label, folder in enumerate(folders):
        check_file_name(folder)
        below = files_below(folder)
        images = [file for file in below if _may_be_image(file)]
        others += [str(file.relative_to(directory)) for file in below if not _may_be_image(file)]
        if not images:
            raise InputError(_no_image(folder, below))
        files += images
        labels += [label] * len(images)
    _warn_of_skipped(directory, tuple(others), "in no image format that is read")
    return Listing(files, labels, [folder.name for folder in folders])


def _no_image(folder: Path, files: Sequence[Path]) -> str:
    if files:
        return (
            f"class folder {folder} has {files[0].name}, but no image in a format that is read; convert its "
            "images to JPEG or PNG, or delete the folder"
        )
    return f"class folder {folder} has no image; add some or delete the folder"


def _refuse_splits(directory: Path, folders: Sequence[Path]) -> None:
    """Raise where the folders are parts of a data set that has its classes one level below."""
    inside = [[f for f in folder.iterdir() if _shown(Path(f.name))] for folder in folders]
    below = [{f.name for f in entries if f.is_dir()} for entries in inside]
    named = [folder.name.lower() for folder in folders]
    images = any(f.is_file() and _may_be_image(f) for entries in inside for f in entries)
    alike = len(folders) > 1 and len(below[0]) > 1 and not images and all(b == below[0] for b in below)
    if not alike and not SPLITS.issuperset(named):
        return
    first = folders[named.index("train")] if "train" in named else folders[0]
    classes = sorted(below[folders.index(first)])
    advice = "put the images of each class into a sub-folder of one folder"
    if classes:
        advice = (
            f"their folders look like the classes ({', '.join(classes[:3])}): name one, as in `sgpa train "
            f"images {first}`, or move the images of each class directly into its folder"
        )
    shown = ", ".join(folder.name for folder in folders[:3])
    raise InputError(f"{directory}: the folders {shown} are not read as classes; {advice}")


@cache  # a run lists its folder more than once
def _warn_of_skipped(directory: Path, names: tuple[str, ...], why: str) -> None:
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        log.warning("%s: skipped %s%s, %s", directory, ", ".join(names[:3]), more, why)


@cache
def _warn_of_dark(folder: Path) -> None:
    log.warning(
        "%s: images of 16 bits that use less than a sixteenth of their range are read as nearly black; "
        "stretch them to 65535 if they hold 12 bits",
        folder,
    )


def _may_be_image(file: Path) -> bool:
    """Whether the ending of the name is that of a format Pillow reads, or there is none."""
    return not file.suffix or Image.registered_extensions().get(file.suffix.lower()) in Image.OPEN


def files_below(folder: Path) -> list[Path]:
    """Regular files at any depth, sorted by path, without hidden ones and those of file managers."""
    files = sorted(f for f in folder.rglob("*") if f.is_file() and _shown(f.relative_to(folder)))
    for file in files:
        check_file_name(file)
    return files


def read_images(files: Sequence[Path], size: int, progress: Progress | None = None) -> NDArray[np.uint8]:
    """Images as squares [N, size, size, 3]; one error names the first files that cannot be read."""
    pixels = np.empty((len(files), size, size, 3), np.uint8)
    bad: list[str] = []
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(files), CHUNK):
            chunk = files[start : start + CHUNK]
            for row, image in enumerate(pool.map(lambda file: _square_or_error(file, size), chunk), start):
                if isinstance(image, InputError):
                    bad.append(str(image))
                else:
                    pixels[row] = image
            if progress:
                progress(start + len(chunk), len(files))
    if bad:
        raise InputError(first_of(bad, "files"))
    return pixels


def _square_or_error(file: Path, size: int) -> NDArray[np.uint8] | InputError:
    try:
        return _square(file, size)
    except InputError as error:
        return error


def _square(file: Path, size: int) -> NDArray[np.uint8]:
    """One image, [size, size, 3]."""
    if not file.is_file():  # opening a pipe would wait for ever
        raise InputError(f"{file} is not a regular file; name an image file")
    try:
        with Image.open(file) as image:
            if min(image.size) < 2:
                raise InputError(
                    f"{file} is {image.width} x {image.height} pixels, too small to be an image; delete it"
                )
            pixels = square_pixels(image, size)
            if image.mode.startswith("I") and 0 < pixels.max() < SHADES:
                _warn_of_dark(file.parent)
            return pixels
    except InputError:
        raise
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = "no image format Pillow knows" if isinstance(error, UnidentifiedImageError) else error
        raise InputError(f"{file} cannot be read as an image ({reason}); replace or delete it") from None


def square_pixels(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """An image turned by its EXIF data, cut to the centred square and resized, [size, size, 3]."""
    colour = _colour(ImageOps.exif_transpose(image))
    return np.asarray(ImageOps.fit(colour, (size, size), Image.Resampling.BICUBIC))


def _colour(image: Image.Image) -> Image.Image:
    """The image with three channels of eight bits."""
    if image.mode == "F" or (image.mode == "I" and np.asarray(image).max() > 0xFFFF):
        raise ValueError(f"mode {image.mode} has no range of brightness to scale from")
    if image.mode.startswith("I"):  # sixteen bits, which Pillow would clip instead of scale
        values = np.asarray(image)
        if values.min() < 0 or 0 < values.max() < DARK:
            raise ValueError(
                f"it has 16 bits, but values from {values.min()} to {values.max()} instead of 65535, and "
                "would be black; save it with 8 bits"
            )
        image = Image.fromarray((values.astype(np.uint32) >> 8).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def _shown(path: Path) -> bool:
    return not any(part.startswith(".") for part in path.parts) and path.name.lower() not in NOT_IMAGES
