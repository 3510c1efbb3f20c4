"""Where, when and with what a run was made: the facts that let a stranger trust or repeat it."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch


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
