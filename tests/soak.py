"""`python -m tests.soak --minutes 30`: memory of a process that trains, attaches and predicts without end.

The first fifth warms up. After that the slope of the resident memory over time, by least squares, must stay
below a limit.
"""

import argparse
import gc
import logging
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from tests.support.tiny_transformers import TorchEncoder, attached, batch, make
from tests.support.training_runs import SGPA, blobs, trainer

import sgpa
from sgpa.inference.serve import serve
from sgpa.models import Transformer

MOST_PER_HOUR = 4.0  # MiB
WARM_UP = 0.2  # of the time


def resident() -> float:
    """MiB that this process holds."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * 4096 / 2**20


def work(number: int, folder: Path) -> None:
    """Train, save, load, predict and serve once, then attach a GP and train a layer."""
    model = trainer(folder / str(number % 4), seed=number).fit() if number < 4 else trainer(seed=number).fit()
    saved = Transformer.from_pretrained(model.save_pretrained(folder / "model"))
    x = blobs(30, number).inputs
    for seed in range(3):
        saved.predict(x, seed=seed)
    saved.predict(x, samples=0)
    serve(SGPA.build(saved.config), rows=8).predict(x)
    attach_and_open(folder / "adapter", number)
    train_layer(number)


def attach_and_open(folder: Path, number: int) -> None:
    """Fit a GP to a model, save it, attach it again and predict."""
    model = make(TorchEncoder, number % 7)
    attached(model).save_pretrained(folder)
    sgpa.attach(model, folder).predict(batch(model, 12, number), samples=2)


def train_layer(number: int) -> None:
    """Three steps of an attention layer, then samples of it."""
    torch.manual_seed(number)
    layer, x = sgpa.MultiheadSgpa(8, 2, batch_first=True, num_global=3), torch.randn(4, 6, 8)
    optimiser = torch.optim.Adam(layer.parameters(), 1e-3)
    for _ in range(3):
        optimiser.zero_grad()
        (layer(x, x, x)[0].square().mean() + sgpa.total_kl(layer, dataset_size=100)).backward()
        optimiser.step()
    sgpa.sample(layer, x, x, x)


def slope(times: list[float], memory: list[float], after: float = WARM_UP) -> float:
    """MiB per hour after a share of the time."""
    t, m = np.array(times), np.array(memory)
    kept = t > t[0] + after * (t[-1] - t[0])
    return float(np.polyfit(t[kept] / 3600, m[kept], 1)[0])


def main() -> int:
    """Run it and print the slope."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    times, memory, number = [], [], 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() - started < 60 * given.minutes:
            work(number, Path(folder))
            number += 1
            gc.collect()
            times.append(time.monotonic() - started)
            memory.append(resident())
    rate = slope(times, memory)
    sys.stdout.write(
        f"{number} rounds in {times[-1] / 60:.1f} min: {memory[len(memory) // 5]:.0f} MiB after the first "
        f"fifth, {memory[-1]:.0f} MiB at the end, slope {rate:.1f} MiB per hour, of the second half "
        f"{slope(times, memory, 0.5):.1f}\n"
    )
    return int(rate > MOST_PER_HOUR)


if __name__ == "__main__":
    sys.exit(main())
