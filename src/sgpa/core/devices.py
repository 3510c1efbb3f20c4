"""Check of device names, peak memory, and the time when a device is done."""

import time
from contextlib import suppress
from pathlib import Path

import torch

from sgpa.core.errors import ConfigError, check_fields

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def forget_peak(device: str) -> None:
    """Reset the peak memory counter."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):  # not available everywhere: `peak` is then that of the whole process
        RESET.write_text("5")


def peak(device: str) -> int | None:
    """Peak memory in bytes since `forget_peak`; None where the system does not report it.

    For a GPU it is the reserved memory, because the private pool of a CUDA graph does not count as allocated.
    """
    if device.startswith("cuda"):
        return torch.cuda.max_memory_reserved(device)
    with suppress(OSError, ValueError):
        for line in STATUS.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def now(device: str) -> float:
    """Seconds of a clock, once everything that was asked of the device is done."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.perf_counter()


def check_device(name: str) -> None:
    """Raise unless the device exists."""
    known = ["cpu"] + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    if name.startswith("cuda") and len(known) == 1:
        raise ConfigError(f"device {name!r}: no GPU found; use --device cpu (in Python device='cpu')")
    fine = name in known or (name == "cuda" and len(known) > 1)
    check_fields("trainer", [("device", name, fine, ", ".join(known))])
