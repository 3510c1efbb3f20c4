"""A small benchmark that dies again and again; test_runner.py starts this file: killed_runs.py FOLDER.

Attempts are forks of one process that has everything imported, so that dying costs little. First a benchmark
runs undisturbed in FOLDER/whole. Then, in FOLDER/moments, attempts are killed at ten random moments, and in
FOLDER/writes each dies just before or just after one of its first writes. Both are then left to finish.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from sgpa.core import provenance
from sgpa.experiments.recipes import plans
from sgpa.experiments.runner import RunFolder, benchmark
from sgpa.training import trainer

METHODS = ("mle", "sgpa", "ts")
TINY = [
    *("optim.epochs=12", "stage1.epochs=8", "stage2.epochs=8", "task.train=100"),
    *("optim.select_every=4", "stage1.select_every=4", "stage2.select_every=4"),
    *("model.depth=1", "model.width=16", "evaluation.rows=50", "evaluation.ood_rows=50"),
]
KILLS = 10


def attempt(folder: Path, seed: int) -> None:
    torch.manual_seed(seed)  # a new process has another random state
    place = RunFolder.of("digits", folder, TINY)
    outcome = benchmark(place, plans(place.recipe, METHODS), seeds=2)
    assert outcome.failures == []


def start(folder: Path, seed: int, deadly_write: int | None = None) -> int:
    """Fork an attempt; with `deadly_write` it dies before (odd) or after (even) that half-counted write."""
    child = os.fork()
    if child:
        return child
    if deadly_write is not None:
        die_at(deadly_write)
    try:
        attempt(folder, seed)
    except BaseException as error:
        sys.stderr.write(f"attempt {seed}: {error!r}\n")
        os._exit(1)
    os._exit(0)


def die_at(moment: int) -> None:
    replace, seen = os.replace, []

    def deadly(*arguments):
        seen.append(1)
        if 2 * len(seen) - 1 == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*arguments)
        if 2 * len(seen) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = deadly


def end(child: int) -> bool:
    """Whether an attempt came to its end by itself; one that fails ends everything."""
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        sys.exit(1)
    return os.WIFEXITED(status)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    trainer.CHECKPOINT_SECONDS = 0.0  # every epoch
    provenance._commit = lambda: "the same"  # somebody may commit while this runs
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])  # the first one imports for seconds
    rng = random.Random(0)
    started = time.monotonic()
    assert end(start(folder / "whole", 0))
    whole = time.monotonic() - started
    for kill in range(KILLS):
        child = start(folder / "moments", kill)
        time.sleep(rng.uniform(0.0, whole / 6))
        os.kill(child, signal.SIGKILL)
        end(child)
    assert end(start(folder / "moments", KILLS))
    died = 0
    while not end(start(folder / "writes", died, rng.randint(3, 14))):
        died += 1
    sys.stdout.write(f"{whole:.1f} s undisturbed, {died} deaths at writes\n")
    assert died >= KILLS


if __name__ == "__main__":
    main(Path(sys.argv[1]))
