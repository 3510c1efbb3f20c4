"""Where data sets are found: a directory the user names, or the cache."""

import os
from pathlib import Path

from sgpa.errors import InputError


def find(name: str, split: str, data_dir: Path | None = None) -> list[Path]:
    """Parquet files of a split in the hub's layout, `<data dir>/<name>/<split>-*-of-*.parquet`, in order."""
    root = data_dir or Path(os.environ.get("SGPA_DATA", Path.home() / ".cache" / "sgpa"))
    files = sorted((root / name).glob(f"{split}-*-of-*.parquet"))
    if not files:
        raise InputError(
            f"{name}: no {split} files; put them at {root / name / f'{split}-00000-of-00001.parquet'}"
        )
    return files
