"""Devices: whether one is there, and how much memory a piece of work takes at most."""

from contextlib import suppress
from pathlib import Path

import torch

from sgpa.core.errors import check_fields

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def forget_peak(device: str) -> None:
    """Start counting anew."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):  # not on every system; the peak of the whole process is then reported
        RESET.write_text("5")


def peak(device: str) -> int | None:
    """Bytes at most since then; None where the system does not tell.

    Of a GPU it is what the process held: a recorded step works in memory of its own, which is held all the
    time and allocated at none.
    """
    if device.startswith("cuda"):
        return torch.cuda.max_memory_reserved(device)
    with suppress(OSError, ValueError):
        for line in STATUS.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def check_device(name: str) -> None:
    """One clear line for a device that is not there."""
    known = ["cpu"] + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    fine = name in known or (name == "cuda" and len(known) > 1)
    check_fields("trainer", [("device", name, fine, ", ".join(known))])
