"""Running recipes: training, calibration, evaluation, and grids of methods and seeds."""

from sgpa.experiments.runner.benchmark import Outcome, benchmark
from sgpa.experiments.runner.calibrate import CalibratedMethod, calibrate
from sgpa.experiments.runner.cells import (
    export,
    open_cell,
    open_trained,
    rows_of,
    saved_predictor,
)
from sgpa.experiments.runner.collect import collect, saved_results, write_results
from sgpa.experiments.runner.evaluate import evaluate_cell
from sgpa.experiments.runner.jobs import Failure, Job, OnProgress, run_jobs
from sgpa.experiments.runner.run_folder import RunFolder
from sgpa.experiments.runner.single import run_cells
from sgpa.experiments.runner.train import train, train_stage
from sgpa.inference.saved import Cell, finished_cells
from sgpa.training.lock import locked

__all__ = [
    "CalibratedMethod",
    "Cell",
    "Failure",
    "Job",
    "OnProgress",
    "Outcome",
    "RunFolder",
    "benchmark",
    "calibrate",
    "collect",
    "evaluate_cell",
    "export",
    "finished_cells",
    "locked",
    "open_cell",
    "open_trained",
    "rows_of",
    "run_cells",
    "run_jobs",
    "saved_predictor",
    "saved_results",
    "train",
    "train_stage",
    "write_results",
]
