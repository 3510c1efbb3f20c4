"""How long a training will take, and a progress bar on a terminal."""

import time
from contextlib import AbstractContextManager
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sgpa.data import Dataset
from sgpa.gp.objective import Progress as StepProgress
from sgpa.models import ModelConfig
from sgpa.training import process_group
from sgpa.training.plan import Plan

TIMED = 3  # steps of each stage; the first is not counted
OVERHEAD = 1.25  # optimiser, validation


class Display(AbstractContextManager["Display"]):
    """One bar for all epochs, with the time left. Nothing is shown where the output is not a terminal."""

    def __init__(self, epochs: int) -> None:
        console = Console(stderr=True)
        self.active = console.is_terminal and process_group.leader()
        columns = (
            TextColumn("{task.description:<12}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
        )
        self.bar = Progress(*columns, console=console, disable=not self.active)
        self.task = self.bar.add_task("starting", total=epochs, note="")
        self.stage, self.note = "", ""
        self.done = self.epochs_before = 0.0

    def __enter__(self) -> "Display":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, text: str) -> None:
        """Print one line above the bar."""
        self.bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def on_progress(self, line: dict[str, Any]) -> None:
        """Advance the bar; a stage that stops early counts as complete."""
        if line["run"] != self.stage:
            self.stage, self.epochs_before = line["run"], self.done
        within = line["epoch"] - 1 + line["step"] / line["steps"] if "step" in line else line["epoch"]
        self.done = self.epochs_before + (line["epochs"] if line.get("stopped_early") else within)
        nll = line.get("validation", {}).get("nll")
        self.note = self.note if nll is None else f"held-out NLL {nll:.3f}"
        self.bar.update(self.task, completed=self.done, description=self.stage, note=self.note)


def estimate_seconds(plan: Plan, config: ModelConfig, train: Dataset, seed: int) -> float:
    """The time that all stages and members take at most, from a few steps of each stage on the CPU."""
    total = 0.0
    with torch.random.fork_rng(devices=[]):
        for stage in plan.stages:
            model = stage.method.build(stage.model(config))
            model.likelihood.initialise(train.targets)
            batch = next(train.batches(stage.optim.batch_size, seed))
            steps = stage.optim.epochs * -(-len(train) // stage.optim.batch_size)
            started = time.perf_counter()
            for i in range(TIMED):
                if i == 1:
                    started = time.perf_counter()
                stage.method.loss(model, batch, StepProgress(0.5, len(train))).total.backward()
            total += OVERHEAD * steps * (time.perf_counter() - started) / (TIMED - 1)
    return total * len(plan.members(seed))


def in_words(seconds: float) -> str:
    """A duration in seconds or minutes, rounded.

    >>> in_words(95.2), in_words(400)
    ('95 s', '7 min')
    """
    return f"{max(1, round(seconds))} s" if seconds < 180 else f"{round(seconds / 60)} min"
