"""Running recipes: training, calibration, evaluation, and grids of methods and seeds."""

from sgpa.experiments.runner.benchmark import Outcome, benchmark
from sgpa.experiments.runner.calibrate import calibrate
from sgpa.experiments.runner.cells import rows_of
from sgpa.experiments.runner.collect import collect, saved_results, write_results
from sgpa.experiments.runner.evaluate import evaluate_cell
from sgpa.experiments.runner.jobs import Job, run_jobs
from sgpa.experiments.runner.run_folder import RunFolder
from sgpa.experiments.runner.single import run_cells
from sgpa.experiments.runner.train import train, train_stage
from sgpa.inference.saved import finished_cells
from sgpa.training.lock import locked

__all__ = [
    "Job",
    "Outcome",
    "RunFolder",
    "benchmark",
    "calibrate",
    "collect",
    "evaluate_cell",
    "finished_cells",
    "locked",
    "rows_of",
    "run_cells",
    "run_jobs",
    "saved_results",
    "train",
    "train_stage",
    "write_results",
]
