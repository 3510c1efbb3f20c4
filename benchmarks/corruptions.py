"""Time the 95 corrupted sets on this machine, or draw examples of them.

Usage: python -m benchmarks.corruptions [N]                 times N images of each set (default 400)
       python -m benchmarks.corruptions sheet FILE.png      draws all of them for one test image of CIFAR-10
CIFAR-10 is read from $SGPA_DATA; without it, timing uses random images.
"""

import io
import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch import Tensor

from sgpa.core.errors import InputError
from sgpa.data.corruptions import SEVERITIES, TYPES, corrupt, frost_source
from sgpa.data.sources import find

FULL = 10_000
SHOWN = (1, 7)  # a ship and a frog: contours against water, texture against texture


def test_images(count: int) -> Tensor:
    """The first images of CIFAR-10's test set, uint8 [N, 3, 32, 32]."""
    rows = pq.read_table(find("cifar10", "test")[0]).slice(0, count)["img"].to_pylist()
    pixels = [np.asarray(Image.open(io.BytesIO(row["bytes"])).convert("RGB")) for row in rows]
    return torch.tensor(np.stack(pixels)).permute(0, 3, 1, 2).contiguous()


def measure(count: int) -> None:
    """Print seconds per corruption, extrapolated from `count` to 10,000 images at five severities."""
    try:
        images = test_images(count)
    except InputError:
        images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8)
    table = Table("corruption", "seconds for 5 x 10,000", "ms per image")
    total = 0.0
    for name in TYPES:
        corrupt(images[:1], name, 1)  # warm up
        started = time.perf_counter()
        for severity in SEVERITIES:
            corrupt(images, name, severity)
        seconds = (time.perf_counter() - started) * FULL / len(images)
        total += seconds
        table.add_row(name, f"{seconds:.1f}", f"{seconds / len(SEVERITIES) / FULL * 1000:.3f}")
    table.add_row("all", f"{total:.1f}", f"{total / len(SEVERITIES) / FULL / len(TYPES) * 1000:.3f}")
    console = Console()
    console.print(table)
    console.print(f"{len(images)} images, {torch.get_num_threads()} threads, frost: {frost_source()}")


def sheet(path: Path) -> None:
    """Draw every corruption of two images at every severity, and the originals, to a file."""
    images = test_images(max(SHOWN) + 1)
    columns = len(SHOWN) * (len(SEVERITIES) + 1)
    figure, axes = plt.subplots(len(TYPES), columns, figsize=(columns * 0.9 + 1.6, len(TYPES) * 0.92))
    for name, row in zip(TYPES, axes, strict=True):
        shown = [corrupt(images, name, severity) for severity in SEVERITIES]
        cells = [version[index] for index in SHOWN for version in (images, *shown)]
        for axis, cell in zip(row, cells, strict=True):
            axis.imshow(cell.permute(1, 2, 0), interpolation="nearest")
            axis.set_xticks([])
            axis.set_yticks([])
        label = f"frost\n({frost_source()})" if name == "frost" else name.replace("_", "\n")
        row[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=11)
    for axis, title in zip(axes[0], ("original", *map(str, SEVERITIES)) * len(SHOWN), strict=True):
        axis.set_title(title, fontsize=11)
    figure.subplots_adjust(left=0.1, right=0.995, top=0.975, bottom=0.005, wspace=0.03, hspace=0.03)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=75)


if __name__ == "__main__":
    if sys.argv[1:2] == ["sheet"]:
        sheet(Path(sys.argv[2]))
    else:
        measure(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
