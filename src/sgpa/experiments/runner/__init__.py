"""Running recipes: trainings, tests, grids of both."""

from sgpa.experiments.runner.benchmark import Outcome, benchmark
from sgpa.experiments.runner.cells import (
    CalibratedMethod,
    assess,
    cell_of,
    open_cell,
    open_trained,
    prepare,
    train,
)
from sgpa.experiments.runner.export import export
from sgpa.experiments.runner.jobs import Failure, Job, run_jobs
from sgpa.experiments.runner.run_folder import RunFolder

__all__ = [
    "CalibratedMethod",
    "Failure",
    "Job",
    "Outcome",
    "RunFolder",
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
