"""CIFAR-10, CIFAR-100 and their out-of-distribution sets as uint8 tensors; models normalise them."""

import hashlib
import io
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from sgpa.core.errors import CheckpointError, InputError
from sgpa.core.files import read_tensors, write_tensors
from sgpa.core.saved_tensors import Shape, check_tensors
from sgpa.data.dataset import Dataset, Splits
from sgpa.data.images.augment import three_augment
from sgpa.data.sources import cache_dir, find, read_table, stamp

SIZE = 32
MEAN = (0.4914, 0.4822, 0.4465)  # of CIFAR-10's training pixels in [0, 1]; the authors' code has these
STD = (0.2470, 0.2435, 0.2616)
LABELS = {"cifar10": "label", "cifar100": "fine_label", "svhn": "label", "mini_imagenet": "label"}
CLASSES = {"cifar10": 10, "cifar100": 100, "svhn": 10, "mini_imagenet": 100}
OOD_SETS = {  # the out-of-distribution sets of each task
    "cifar10": ("cifar100", "svhn", "mini_imagenet"),
    "cifar100": ("cifar10", "svhn", "mini_imagenet"),
}
# AUPR depends on the share of OOD images, so subsets are weighted to the sizes of the paper
PAPER_OOD_ROWS = {"cifar10": 10_000, "cifar100": 10_000, "svhn": 26_032, "mini_imagenet": 60_000}

log = logging.getLogger(__name__)


def cifar(name: str, *, augment: bool = False, data_dir: Path | None = None, split_seed: int = 0) -> Splits:
    """CIFAR-10 or CIFAR-100, split 45,000 / 5,000 / 10,000 as in the paper.

    Args:
        name: "cifar10" or "cifar100".
        augment: Apply 3-Augment to shuffled training batches.
        data_dir: The folder that holds `cifar10/`; by default `$SGPA_DATA` and the cache.
        split_seed: Random seed that chooses the tenth of the training images for validation.

    Returns:
        The splits; images are [N, 3, 32, 32] uint8.

    Example:
        >>> data = cifar("cifar10", augment=True)  # doctest: +SKIP
    """
    if name not in OOD_SETS:
        raise InputError(f"unknown data set {name!r}; known: {', '.join(OOD_SETS)}")
    images, labels = load_images(name, "train", data_dir)  # [50000, 3, 32, 32], [50000]
    test = Dataset(*load_images(name, "test", data_dir))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(split_seed))
    held_out, training = order.tensor_split([len(order) // 10])
    train = Dataset(images[training], labels[training], three_augment if augment else None)
    return Splits(train, Dataset(images[held_out], labels[held_out]), test)


def ood_images(name: str, data_dir: Path | None = None) -> Tensor:
    """Out-of-distribution images [N, 3, 32, 32] for models of another set: the test split of `name`."""
    return load_images(name, "test", data_dir)[0]


def load_images(name: str, split: str, data_dir: Path | None = None) -> tuple[Tensor, Tensor]:
    """Images [N, 3, 32, 32] uint8 and labels [N] int64 of a split, in the order of its files.

    Decoded images are cached; files of another size or modification time are decoded again.
    """
    if name not in LABELS:
        raise InputError(f"unknown image set {name!r}; known: {', '.join(LABELS)}")
    files = find(name, split, data_dir)
    cached = cache_dir() / "decoded" / f"{name}-{split}-{_fingerprint(files)}.safetensors"
    try:
        tensors, _ = read_tensors(cached)
        shapes: dict[str, Shape] = {"images": ("N", 3, SIZE, SIZE), "labels": ("N",)}
        check_tensors(tensors, shapes, cached, whole=tuple(shapes))
        return tensors["images"], tensors["labels"]
    except CheckpointError:  # missing or damaged: decode again
        pass
    parts = [_decode(file, LABELS[name], CLASSES[name]) for file in files]
    images = torch.cat([pixels for pixels, _ in parts])  # [N, 3, 32, 32]
    labels = torch.cat([classes for _, classes in parts])  # [N]
    try:
        write_tensors(cached, {"images": images, "labels": labels}, {"files": [str(file) for file in files]})
    except OSError as error:
        log.warning("decoded images are not cached, so the next start is slow: %s", error)
    return images, labels


def _decode(file: Path, label: str, classes: int) -> tuple[Tensor, Tensor]:
    """Images and labels of one Parquet file."""
    table = read_table(file, ["img", label])
    column = table["img"].combine_chunks()
    if not hasattr(column, "field") or column.type.get_field_index("bytes") < 0:
        raise InputError(f"{file}: column img is {column.type}, expected {{bytes, path}} with encoded images")
    encoded: list[bytes | None] = column.field("bytes").to_pylist()
    labels = _labels(file, label, table[label].to_pylist(), classes)
    pixels = np.empty((len(encoded), SIZE, SIZE, 3), np.uint8)
    likely = _format(encoded[0] if encoded else None)

    def fill(rows: range) -> None:
        for row in rows:
            pixels[row] = _pixels(file, row, encoded[row], likely)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(fill, [range(i, min(i + 500, len(encoded))) for i in range(0, len(encoded), 500)]))
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), labels


def _format(encoded: bytes | None) -> list[str] | None:
    """The format of one image, which is tried first for the others: trying all of Pillow's is slow."""
    try:
        name = Image.open(io.BytesIO(encoded or b"")).format
    except (OSError, ValueError, SyntaxError):
        return None
    return None if name is None else [name]


def _open(encoded: bytes, likely: list[str] | None) -> Image.Image:
    try:
        return Image.open(io.BytesIO(encoded), formats=likely)
    except UnidentifiedImageError:
        return Image.open(io.BytesIO(encoded))


def _pixels(file: Path, row: int, encoded: bytes | None, likely: list[str] | None) -> NDArray[np.uint8]:
    """One image, [32, 32, 3]."""
    if encoded is None:
        raise InputError(f"{file}, row {row}: no image; replace the file")
    try:
        image = _open(encoded, likely)
        if image.mode != "RGB" or image.size != (SIZE, SIZE):
            channels = f"{len(image.getbands())} channels ({image.mode})"
            raise InputError(
                f"{file}, row {row}: image of {image.width} x {image.height} pixels and {channels}, "
                f"expected {SIZE} x {SIZE} RGB; replace the file"
            )
        return np.frombuffer(image.tobytes(), np.uint8).reshape(SIZE, SIZE, 3)
    except InputError:
        raise
    except (OSError, ValueError, SyntaxError) as error:
        reason = "no image format Pillow knows" if isinstance(error, UnidentifiedImageError) else error
        raise InputError(f"{file}, row {row}: image cannot be read ({reason}); replace the file") from None


def _labels(file: Path, column: str, values: list[object], classes: int) -> Tensor:
    for row, value in enumerate(values):
        if not isinstance(value, int) or not 0 <= value < classes:
            raise InputError(
                f"{file}, row {row}: {column}={value!r} (allowed: 0..{classes - 1}); replace the file"
            )
    return torch.tensor(values, dtype=torch.int64)


def _fingerprint(files: Sequence[Path]) -> str:
    """Changes when a file changes."""
    return hashlib.sha256(repr(stamp(files)).encode()).hexdigest()[:16]
