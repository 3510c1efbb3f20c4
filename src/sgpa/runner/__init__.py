"""Running recipes: trainings, tests, grids of both."""

from sgpa.runner.benchmark import Outcome, benchmark
from sgpa.runner.cells import Ready, assess, cell_of, open_cell, open_trained, prepare, train
from sgpa.runner.export import export
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
    "cell_of",
    "export",
    "open_cell",
    "open_trained",
    "prepare",
    "run_jobs",
    "train",
]
