"""Provenance of a run: versions, hardware, commit and date."""

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

import torch

from sgpa import __version__
from sgpa.core.files import read_json, write_json

FILE = "made.json"  # the provenance of a folder's contents


class Provenance(TypedDict):
    """`made.json`."""

    versions: dict[str, str]
    hardware: str
    commit: str
    date: str


def provenance() -> dict[str, Any]:
    """Versions, hardware, commit and date."""
    return {
        "versions": {
            "sgpa": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else _cpu(),
        "commit": _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def record(folder: Path) -> None:
    """Write the provenance into the folder."""
    write_json(folder / FILE, provenance())


def of_all(folders: Sequence[Path]) -> dict[str, Any]:
    """The provenance of several folders: one value where they agree, otherwise a list; the latest date.

    Empty where no folder has a record.
    """
    files = [folder / FILE for folder in dict.fromkeys(folders) if (folder / FILE).exists()]
    records = [read_json(file, Provenance) for file in files]
    if not records:
        return {}
    facts = {name: _agreed([each[name] for each in records]) for name in ("versions", "hardware", "commit")}
    return facts | {"date": max(each["date"] for each in records)}


def _agreed(values: Sequence[Any]) -> Any:
    """The common value, or a list of the different ones."""
    different = [value for i, value in enumerate(values) if value not in values[:i]]
    return different[0] if len(different) == 1 else different


def _cpu() -> str:
    """Model and number of cores, as far as the system reports them."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def _commit() -> str:
    """The commit of the source tree: that of $SGPA_COMMIT, that of git, or 'unknown'.

    A package that is installed below somebody's repository is no part of it, and has no commit.
    """
    if named := os.environ.get("SGPA_COMMIT"):
        return named
    here = Path(__file__)
    try:
        _git(here.parent, "ls-files", "--error-unmatch", here.name)
        return _git(here.parent, "describe", "--always", "--dirty")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder).stdout.strip()
