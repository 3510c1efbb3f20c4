"""Finished cells of any version: opened with or without their data, exported."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sgpa.core.errors import CheckpointError
from sgpa.experiments.recipes import plan
from sgpa.experiments.runner.calibrate import CalibratedMethod, calibrate
from sgpa.experiments.runner.older_runs import read_older
from sgpa.experiments.runner.run_folder import FILE as RECIPE
from sgpa.experiments.runner.run_folder import RunFolder
from sgpa.inference.answers import Trained
from sgpa.inference.preferred import preferred_cell
from sgpa.inference.saved import Cell, SavedPredictor, describes_itself, finished_cells, read_saved
from sgpa.training.plan import Plan


def rows_of(cells: Sequence[Cell], **options: Any) -> list[tuple[RunFolder, Plan, int]]:
    """The run folder, the plan and the seed of each cell; `options` are those of `RunFolder`."""
    run_folders: dict[Path, RunFolder] = {}
    rows = []
    for cell in cells:
        folder, metadata = cell.folder.resolve(), cell.metadata
        if folder.parent.name != "cells" or not (folder.parents[1] / RECIPE).exists():
            raise CheckpointError(
                f"{cell.folder} holds a model without the recipe it was made with; evaluate its own run"
            )
        run = folder.parents[1]
        if run not in run_folders:
            run_folders[run] = RunFolder.at(run, **options)
        row = plan(run_folders[run].recipe, metadata["method"], metadata["attention"])
        rows.append((run_folders[run], row, metadata["seed"]))
    return rows


def saved_predictor(cell: Cell) -> SavedPredictor:
    """The predictor of a cell, whichever version wrote it."""
    reads = read_saved if describes_itself(cell.metadata) else read_older
    return reads(cell.folder, cell.metadata)


def open_cell(folder: Path, *, data_dir: Path | None = None, device: str = "cpu") -> CalibratedMethod:
    """A finished cell with its data, to be tested."""
    (row,) = rows_of(finished_cells(folder)[:1], data_dir=data_dir, device=device)
    return calibrate(*row)


def open_trained(folder: Path, *, device: str = "cpu") -> Trained:
    """A finished run without its data, to predict for new inputs. A run folder opens `preferred_cell`.

    >>> open_trained(Path("runs/photos")).classes  # doctest: +SKIP
    """
    return saved_predictor(preferred_cell(folder)[0]).open(device)


def export(folder: Path, target: Path) -> Path:
    """Copy what predictions need of a finished run into a new folder; returns that folder."""
    return saved_predictor(preferred_cell(folder)[0]).export(target)
