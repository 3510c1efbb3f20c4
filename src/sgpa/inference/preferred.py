"""Which cell of a run folder is meant where a command or a call names only the folder."""

from pathlib import Path

from sgpa.core.files import read_json
from sgpa.inference.saved import RECIPE, Cell, SavedRecipe, finished_cells

PREFERRED = ("sgpa", "sgpae")  # methods of a recipe's run that are opened first


def preferred_cell(run: Path) -> tuple[Cell, int]:
    """The cell that a folder means, and the number of other cells.

    A run on a user's data opens the method that its training chose. Other runs open SGPA, else the first
    method of the recipe.
    """
    cells = finished_cells(run)
    if len(cells) > 1 and not _chosen_by_training(run / RECIPE):
        for method in PREFERRED:
            for cell in cells:
                if cell.metadata["method"] == method:
                    return cell, len(cells) - 1
    return cells[0], len(cells) - 1


def _chosen_by_training(recipe: Path) -> bool:
    """Whether the first method of a recipe.json was chosen on held-out rows, as for a user's own data."""
    return "path" in read_json(recipe, SavedRecipe).get("values", {}).get("task", {})
