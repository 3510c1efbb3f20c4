"""Where, when and with what a run was made: the facts that let a stranger trust or repeat it."""

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from sgpa.core.files import read_json, write_json

FILE = "made.json"  # in a folder: where, when and with what its contents were made


def provenance() -> dict[str, Any]:
    """Versions, hardware, commit and date."""
    return {
        "versions": {
            "sgpa": _version(),
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else _cpu(),
        "commit": _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def record(folder: Path) -> None:
    """Keep the facts beside what was made."""
    write_json(folder / FILE, provenance())


def of_all(folders: Sequence[Path]) -> dict[str, Any]:
    """The facts of folders that go together: what they agree in, or a list; the date is the last.

    Nothing where nothing was recorded.
    """
    files = [folder / FILE for folder in dict.fromkeys(folders) if (folder / FILE).exists()]
    made = [read_json(file) for file in files]
    if not made:
        return {}
    found = {name: _agreed([facts[name] for facts in made]) for name in made[0] if name != "date"}
    return found | {"date": max(facts["date"] for facts in made)}


def _agreed(values: Sequence[Any]) -> Any:
    """The value, or those that differ in a list."""
    different = [value for i, value in enumerate(values) if value not in values[:i]]
    return different[0] if len(different) == 1 else different


def _version() -> str:
    try:
        return version("sgpa")
    except PackageNotFoundError:  # used from a source tree that was never installed
        return "source"


def _cpu() -> str:
    """Model and number of cores, as far as the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def _commit() -> str:
    """The commit of the source tree, or 'unknown' where the package was installed without one.

    Where a tree is copied to another machine without its history, $SGPA_COMMIT says what it is.
    """
    if named := os.environ.get("SGPA_COMMIT"):
        return named
    command = ["git", "describe", "--always", "--dirty"]
    here = Path(__file__).parent
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=here)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
