"""How long a training will take, and its progress: a bar on a terminal, otherwise a line now and then."""

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from sgpa.core.devices import now
from sgpa.core.progress import LINE_SECONDS, progress_columns
from sgpa.data import Dataset
from sgpa.gp.objective import Progress as StepProgress
from sgpa.models import ModelConfig
from sgpa.training import process_group
from sgpa.training.plan import Plan

UNTIMED, TIMED = 2, 4  # steps of each stage: first ones that are slower, then those that are timed
OVERHEAD = 1.25  # optimiser, validation


class Display(AbstractContextManager["Display"]):
    """Progress of all epochs, with the time left, on standard error.

    A terminal shows one bar. Elsewhere (notebooks, log files) there is a line every half minute.

    Args:
        epochs: Of all stages and members.
        shown: False shows nothing.
        clock: Seconds; another one for tests.
    """

    def __init__(
        self, epochs: int, *, shown: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        console = Console(stderr=True)
        self.shown = shown and process_group.leader()
        self.lines = self.shown and not console.is_terminal
        self.bar = Progress(*progress_columns(12), console=console, disable=self.lines or not self.shown)
        self.task = self.bar.add_task("starting", total=epochs, note="")
        self.epochs, self.clock = epochs, clock
        self.started = self.written = clock()
        self.stage, self.note = "", ""
        self.validation: list[float] = []  # held-out NLL of the current stage
        self.done = self.epochs_before = 0.0

    def __enter__(self) -> "Display":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, text: str) -> None:
        """Print one line, above the bar if there is one."""
        if self.lines:
            print(text, file=sys.stderr, flush=True)  # noqa: T201
        else:
            self.bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def on_progress(self, line: dict[str, Any]) -> None:
        """Advance the bar, or print a line where one is due; a stage that stops early counts as complete."""
        if line["run"] != self.stage:
            self.stage, self.epochs_before, self.validation = line["run"], self.done, []
        within = line["epoch"] - 1 + line["step"] / line["steps"] if "step" in line else line["epoch"]
        self.done = self.epochs_before + (line["epochs"] if line.get("stopped_early") else within)
        nll = line.get("validation", {}).get("nll")
        if nll is not None:
            self.validation.append(nll)
            self.note = f"held-out NLL {nll:.3f}"
        self.bar.update(self.task, completed=self.done, description=self.stage, note=self.note)
        moment = self.clock()
        if self.lines and moment - self.written >= LINE_SECONDS:
            self.written = moment
            left = (moment - self.started) * (self.epochs - self.done) / max(self.done, 1e-9)
            parts = (
                self.stage,
                f"{100 * self.done / self.epochs:.0f} %",
                self.note,
                f"{in_words(left)} left",
            )
            self.show(", ".join(part for part in parts if part))


def estimate_seconds(plan: Plan, config: ModelConfig, train: Dataset, seed: int, device: str) -> float:
    """The time that all stages and members take at most, from a few steps of each stage."""
    total = 0.0
    with torch.random.fork_rng(devices=[]):
        for stage in plan.stages:
            model = stage.method.build(stage.model(config)).to(device)
            model.likelihood.check(train.targets, model.config.outputs)
            model.likelihood.initialise(train.targets.to(device))
            steps = stage.optim.epochs * -(-len(train) // stage.optim.batch_size)
            count, started = 0, time.perf_counter()
            while count < UNTIMED + TIMED:
                some = train.batches(stage.optim.batch_size, seed)
                for batch in islice(some, UNTIMED + TIMED - count):
                    if count == UNTIMED:
                        started = now(device)
                    loss = stage.method.loss(model, batch.to(device), StepProgress(0.5, len(train))).total
                    loss.backward()
                    count += 1
            total += OVERHEAD * steps * (now(device) - started) / TIMED
    return total * len(plan.members(seed))


def in_words(seconds: float) -> str:
    """A duration in seconds or minutes, rounded.

    >>> in_words(95.2), in_words(400)
    ('95 s', '7 min')
    """
    return f"{max(1, round(seconds))} s" if seconds < 180 else f"{round(seconds / 60)} min"
