"""What predictions need of a finished run, in a folder of its own that can be carried elsewhere."""

from pathlib import Path

from sgpa.files import copy_all
from sgpa.runner.cells import cell_of

KEPT = ("run.json", "reader.json", "tokenizer.json", "calibrated-*.safetensors")  # of a cell


def export(cell: Path, folder: Path) -> Path:
    """Copy a cell's models and what reads new inputs; returns the cell's copy, which `open_trained` opens."""
    place, plan, seed = cell_of(cell)
    copy = folder / "cells" / cell.resolve().name
    pairs = [(place.directory / "recipe.json", folder / "recipe.json")]
    pairs += [(file, copy / file.name) for pattern in KEPT for file in sorted(cell.glob(pattern))]
    for member in plan.members(seed):
        trained = place.folder(plan, plan.trainings[-1], member)
        kept = folder / "trainings" / trained.name / "model"
        pairs += [(file, kept / file.name) for file in sorted((trained / "model").iterdir())]
    copy_all(pairs, folder)
    return copy
