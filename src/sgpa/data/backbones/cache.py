"""Features of rows, computed once: chunks of rows in files whose names are hashes of what they hold."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from sgpa.core.errors import CheckpointError, InputError
from sgpa.core.files import ensure_directory, read_tensors, write_tensors
from sgpa.core.inputs import Features
from sgpa.core.saved_tensors import check_tensors
from sgpa.data.fetch import Progress
from sgpa.data.sources import cache_dir

CHUNK = 200  # rows of a file: what is lost when the work is interrupted


@dataclass(frozen=True)
class FeatureRows:
    """Sequences of features without padding: row n has `lengths[n]` tokens."""

    flat: Tensor  # [sum of lengths, F] float16
    lengths: Tensor  # [N]

    @staticmethod
    def of(rows: Sequence[Tensor]) -> "FeatureRows":
        """Rows [T_n, F] in half precision."""
        flat = torch.cat(list(rows)).half()
        if not flat.isfinite().all():
            raise InputError("backbone: its features are not finite in half precision; it was damaged")
        return FeatureRows(flat, torch.tensor([len(row) for row in rows]))

    def padded(self, tokens: int) -> Features:
        """All rows with `tokens` tokens, [N, tokens, F]."""
        real = torch.arange(tokens) < self.lengths.unsqueeze(1)  # [N, tokens]
        values = self.flat.new_zeros(*real.shape, self.flat.shape[1])
        values[real] = self.flat
        return Features(values, ~real)


def cached(
    keys: Sequence[str],
    settings: str,
    compute: Callable[[slice], FeatureRows],
    progress: Progress | None = None,
    folder: Path | None = None,
) -> FeatureRows:
    """Features of all rows, chunk by chunk, from files where they exist.

    Args:
        keys: What identifies the content of each row.
        settings: What identifies the network and how it is read.
        compute: The features of a slice of the rows.
        progress: Called with rows done and rows in all.
        folder: Where the files are; `features` in the cache by default.
    """
    folder = folder or cache_dir() / "features"
    ensure_directory(folder, "choose another cache with XDG_CACHE_HOME")
    parts: list[FeatureRows] = []
    for start in range(0, len(keys), CHUNK):
        rows = slice(start, min(start + CHUNK, len(keys)))
        name = hashlib.sha256("\0".join([settings, *keys[rows]]).encode("utf-8", "replace")).hexdigest()[:24]
        parts.append(_read_or_compute(folder / f"{name}.safetensors", rows, compute))
        if progress:
            progress(rows.stop, len(keys))
    return FeatureRows(torch.cat([part.flat for part in parts]), torch.cat([part.lengths for part in parts]))


def _read_or_compute(file: Path, rows: slice, compute: Callable[[slice], FeatureRows]) -> FeatureRows:
    try:
        return _read(file, rows.stop - rows.start)
    except CheckpointError:  # missing, damaged, or exchanged for another
        part = compute(rows)
        write_tensors(file, {"flat": part.flat, "lengths": part.lengths}, metadata=file.stem)
        return part


def _read(file: Path, count: int) -> FeatureRows:
    """The rows of a file, which holds its own name: it may have been exchanged for that of other rows."""
    saved, name = read_tensors(file)
    check_tensors(saved, {"flat": ("T", "F"), "lengths": (count,)}, file, whole=("lengths",))
    rows = FeatureRows(saved["flat"], saved["lengths"])
    right = rows.flat.dtype == torch.float16 and rows.lengths.dtype == torch.int64
    if name != file.stem or not right or bool((rows.lengths < 1).any()):
        raise CheckpointError(f"{file} does not hold the features of its rows")
    if int(rows.lengths.sum()) != len(rows.flat):
        raise CheckpointError(f"{file} has {len(rows.flat)} tokens, not {int(rows.lengths.sum())}")
    return rows
