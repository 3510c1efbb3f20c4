"""The runs that finished cells belong to."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sgpa.core.errors import CheckpointError
from sgpa.experiments.recipes import plan
from sgpa.experiments.runner.run_folder import FILE as RECIPE
from sgpa.experiments.runner.run_folder import RunFolder
from sgpa.inference.saved import Cell
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
