"""Corrupted test sets on disk: the published files where the user has them, or files made here once.

Both lie in a data dir as `<folder>/<type>.npy`, uint8 [5 N, 32, 32, 3], all of severity 1 first: the
published ones in `CIFAR-10-C` or `cifar10-c`, those that `make` wrote in `cifar10-c-regenerated`, beside a
note that says of which images and with which random numbers.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from sgpa.core.errors import CheckpointError
from sgpa.core.files import digest, read_json, write_json
from sgpa.data import corruptions as c
from sgpa.data.sources import cache_dir, roots

NOTE = "made.json"  # which images, which random numbers
SEED = 0
PUBLISHED = {"cifar10": ("CIFAR-10-C", "cifar10-c"), "cifar100": ("CIFAR-100-C", "cifar100-c")}


@dataclass(frozen=True)
class CorruptedFiles:
    """A folder of corrupted copies of a test set of `rows` images."""

    folder: Path
    rows: int
    regenerated: bool

    def load(self, name: str, severity: int) -> Tensor:
        """One set, uint8 [rows, 3, 32, 32]."""
        return c.load(self.folder, name, severity, self.rows)

    def has(self, name: str) -> bool:
        """Whether this type can be read; published sets have all of them, and say which file is missing."""
        return not self.regenerated or (self.folder / f"{name}.npy").is_file()


def find(name: str, images: Tensor, data_dir: Path | None = None) -> CorruptedFiles | None:
    """What there is for the test images [N, 3, 32, 32] of a set; published files come first."""
    for root in roots(data_dir):
        for published in PUBLISHED.get(name, ()):
            if any((root / published).glob("*.npy")):
                return CorruptedFiles(root / published, len(images), regenerated=False)
    for root in roots(data_dir):
        folder = _folder(name, root)
        if _same(folder, images):
            return CorruptedFiles(folder, len(images), regenerated=True)
    return None


def make(
    name: str,
    images: Tensor,
    data_dir: Path | None = None,
    *,
    types: Sequence[str] = c.NAMES,
    tell: Callable[[str, int, int], None] = lambda *_: None,
) -> Path:
    """Corrupt the test images of a set in all ways, once: the folder, 154 MB a type. What is there stays."""
    folder = _folder(name, Path(data_dir) if data_dir is not None else cache_dir())
    if not _same(folder, images):
        for old in folder.glob("*.npy"):
            old.unlink()
        write_json(folder / NOTE, _about(images))
    for i, kind in enumerate(types):
        tell(kind, i, len(types))
        file, part = folder / f"{kind}.npy", folder / f".{kind}.{os.getpid()}.tmp"
        if file.exists():
            continue
        sets = [c.corrupt(images, kind, severity, SEED) for severity in c.SEVERITIES]
        with part.open("wb") as out:
            np.save(out, np.concatenate([one.permute(0, 2, 3, 1).cpu().numpy() for one in sets]))
        os.replace(part, file)
    tell("done", len(types), len(types))
    return folder


def _folder(name: str, root: Path) -> Path:
    return root / f"{name}-c-{c.REGENERATED}"


def _about(images: Tensor) -> dict[str, object]:
    return {"images": digest(images), "rows": len(images), "seed": SEED, "frost": c.frost_source()}


def _same(folder: Path, images: Tensor) -> bool:
    try:
        return bool(read_json(folder / NOTE) == _about(images))
    except CheckpointError:  # not there, or damaged: made again
        return False
