"""A small benchmark that is killed repeatedly; test_runner.py starts this file: killed_runs.py FOLDER.

Attempts are forks of one process that has everything imported, so that a death costs little. First a
benchmark runs undisturbed in FOLDER/whole. Then, in FOLDER/moments, attempts are killed at random moments,
and in FOLDER/writes each dies just before or just after one of its first writes. Both are then finished.
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

METHODS = ("sgpa", "ts")
TINY = [
    *("optim.epochs=4", "stage1.epochs=3", "stage2.epochs=3", "task.train=50"),
    *("optim.select_every=2", "stage1.select_every=2", "stage2.select_every=2"),
    *("model.depth=1", "model.width=8", "model.heads=2", "sgpa.attention.num_global=2"),
    *("evaluation.rows=20", "evaluation.ood_rows=20"),
]
KILLS = 5


def attempt(folder: Path, seed: int) -> None:
    torch.manual_seed(seed)  # a new process has another random state
    run_folder = RunFolder.of("digits", folder, TINY)
    outcome = benchmark(run_folder, plans(run_folder.recipe, METHODS), seeds=1)
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
    """Whether an attempt was not killed; one that fails ends everything."""
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        sys.exit(1)
    return os.WIFEXITED(status)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    trainer.CHECKPOINT_SECONDS = 0.0  # every epoch
    provenance._commit = lambda: "the same"  # the repository may change while this runs
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])  # the first one imports for seconds
    RunFolder.of("digits", folder, TINY).task(0)  # forks inherit the data
    rng = random.Random(0)
    started = time.monotonic()
    assert end(start(folder / "whole", 0))
    whole = time.monotonic() - started
    for kill in range(KILLS):
        child = start(folder / "moments", kill)
        time.sleep(rng.uniform(0.0, whole / 3))
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
