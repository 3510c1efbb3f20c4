"""Corrupted test sets on disk: the published files, or files that `write` regenerated once.

Both are `<data dir>/<folder>/<type>.npy`, uint8 [5 N, 32, 32, 3], all of severity 1 first. The published ones
are in `CIFAR-10-C` or `cifar10-c`, regenerated ones in `cifar10-c-regenerated` with a `made.json` that
identifies the images and the random seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from sgpa.core.errors import CheckpointError
from sgpa.core.files import digest, read_json, replacing, write_json
from sgpa.data import corruptions as c
from sgpa.data.sources import cache_dir, roots

MANIFEST = "made.json"
SEED = 0
PUBLISHED = {"cifar10": ("CIFAR-10-C", "cifar10-c"), "cifar100": ("CIFAR-100-C", "cifar100-c")}


@dataclass(frozen=True)
class CorruptedFiles:
    """A folder of corrupted copies of a test set of `rows` images."""

    folder: Path
    rows: int
    regenerated: bool

    def load(self, name: str, severity: int) -> Tensor:
        """One corrupted copy, uint8 [rows, 3, 32, 32]."""
        return c.load(self.folder, name, severity, self.rows)

    def has(self, name: str) -> bool:
        """Whether to read this type here. Published sets have all types; `load` names a missing file."""
        return not self.regenerated or (self.folder / f"{name}.npy").is_file()


def find(name: str, images: Tensor, data_dir: Path | None = None) -> CorruptedFiles | None:
    """Files of corrupted copies of the test images [N, 3, 32, 32] of a set, the published ones first."""
    for root in roots(data_dir):
        for published in PUBLISHED.get(name, ()):
            if any((root / published).glob("*.npy")):
                return CorruptedFiles(root / published, len(images), regenerated=False)
    for root in roots(data_dir):
        folder = _folder(name, root)
        if _is_of(folder, images):
            return CorruptedFiles(folder, len(images), regenerated=True)
    return None


def write(
    name: str,
    images: Tensor,
    data_dir: Path | None = None,
    *,
    types: Sequence[str] = c.NAMES,
    on_progress: Callable[[str, int, int], None] = lambda *_: None,
) -> Path:
    """Corrupt the test images of a set once and write the files, 154 MB a type. Files that exist are kept.

    Args:
        name: "cifar10" or "cifar100".
        images: Its test images [N, 3, 32, 32] uint8.
        data_dir: Where the folder is made; the cache by default.
        types: Corruptions to write.
        on_progress: Called with the type, how many are done and how many there are.

    Returns:
        The folder.
    """
    folder = _folder(name, Path(data_dir) if data_dir is not None else cache_dir())
    if not _is_of(folder, images):
        for old in folder.glob("*.npy"):
            old.unlink()
        write_json(folder / MANIFEST, _manifest(images))
    for i, kind in enumerate(types):
        on_progress(kind, i, len(types))
        file = folder / f"{kind}.npy"
        if file.exists():
            continue
        copies = [c.corrupt(images, kind, severity, SEED) for severity in c.SEVERITIES]
        with replacing(file) as part, part.open("wb") as out:
            np.save(out, np.concatenate([copy.permute(0, 2, 3, 1).cpu().numpy() for copy in copies]))
    on_progress("done", len(types), len(types))
    return folder


def _folder(name: str, root: Path) -> Path:
    return root / f"{name}-c-{c.REGENERATED}"


def _manifest(images: Tensor) -> dict[str, object]:
    return {"images": digest(images), "rows": len(images), "seed": SEED, "frost": c.frost_source()}


def _is_of(folder: Path, images: Tensor) -> bool:
    """Whether the folder was made of these images with today's seed and frost."""
    try:
        return bool(read_json(folder / MANIFEST, dict[str, Any]) == _manifest(images))
    except CheckpointError:  # missing or damaged
        return False
