"""What predictions need of a finished run, in a folder of its own that can be carried elsewhere."""

from dataclasses import replace
from pathlib import Path

from sgpa.core.files import copy_all
from sgpa.experiments.runner.cells import cell_of
from sgpa.inference import readers

KEPT = ("run.json", readers.FILE, readers.TOKENIZER, "calibrated-*.safetensors")  # of a cell


def export(cell: Path, folder: Path) -> Path:
    """Copy a cell's models and what reads new inputs; returns the cell's copy, which `open_trained` opens."""
    here, plan, seed = cell_of(cell)
    there = replace(here, directory=folder)
    copy = there.cell(plan, seed)
    pairs = [(here.directory / "recipe.json", folder / "recipe.json")]
    pairs += [(file, copy / file.name) for pattern in KEPT for file in sorted(cell.glob(pattern))]
    for member in plan.members(seed):
        model, kept = here.model_folder(plan, member), there.model_folder(plan, member)
        pairs += [(file, kept / file.name) for file in sorted(model.iterdir())]
    copy_all(pairs, folder)
    return copy
