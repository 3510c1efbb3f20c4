"""Single cells: train and calibrate a method with one seed, and optionally test it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from sgpa.core.errors import SgpaError
from sgpa.core.progress import OnProgress
from sgpa.experiments.runner.calibrate import calibrate
from sgpa.experiments.runner.evaluate import evaluate_cell
from sgpa.experiments.runner.jobs import silent
from sgpa.experiments.runner.run_folder import FILE, RunFolder
from sgpa.experiments.runner.train import train
from sgpa.models import Transformer
from sgpa.training import process_group
from sgpa.training.lock import locked
from sgpa.training.plan import Plan


def run_cells(
    run_folder: RunFolder,
    plans: Sequence[Plan],
    seed: int,
    on_progress: OnProgress = silent,
    *,
    evaluate: bool = True,
) -> None:
    """Train and calibrate plans with one seed, one after another, and test them if `evaluate`.

    What is finished is not run again. Processes that torchrun started share every training; the first one
    does the rest.
    """
    process_group.begin(run_folder.device)
    run_folder.check()
    run_folder.task(seed)  # if the data cannot be read, no folder is made
    with locked(run_folder.directory), _claimed(run_folder):
        for plan in plans:
            models = train(run_folder, plan, seed, on_progress)
            process_group.from_leader(partial(_finish, run_folder, plan, seed, on_progress, models, evaluate))


def _finish(
    run_folder: RunFolder,
    plan: Plan,
    seed: int,
    on_progress: OnProgress,
    models: Mapping[int, Transformer],
    evaluate: bool,
) -> None:
    if evaluate:
        evaluate_cell(run_folder, plan, seed, on_progress, models=models)
        return
    on_progress("calibrate", 0, 1, "")
    calibrate(run_folder, plan, seed, models)
    on_progress("calibrate", 1, 1, "")


@contextmanager
def _claimed(run_folder: RunFolder) -> Iterator[None]:
    """Claim the folder; a new folder in which nothing was trained is not claimed by settings that fail."""
    directory = run_folder.directory
    new = process_group.from_leader(lambda: not (directory / FILE).exists())
    process_group.from_leader(run_folder.claim)
    try:
        yield
    except SgpaError:
        if new and not (directory / "trainings").exists():
            (directory / FILE).unlink(missing_ok=True)
        raise
