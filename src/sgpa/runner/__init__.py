"""Running recipes: trainings, tests, grids of both."""

from sgpa.runner.benchmark import Outcome, benchmark
from sgpa.runner.cells import Ready, assess, open_cell, prepare, train
from sgpa.runner.jobs import Failure, Job, run_jobs
from sgpa.runner.place import Place

__all__ = [
    "Failure",
    "Job",
    "Outcome",
    "Place",
    "Ready",
    "assess",
    "benchmark",
    "open_cell",
    "prepare",
    "run_jobs",
    "train",
]
