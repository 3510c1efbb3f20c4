"""`sgpa evaluate`: test finished runs."""

from typing import Annotated

import typer

from sgpa.cli.options import AsJson, DataDir, Device, Run, show_json, show_tables
from sgpa.cli.progress import ProgressBars


def evaluate(
    run: Run,
    device: Device = "cpu",
    data_dir: DataDir = None,
    as_json: AsJson = False,
    again: Annotated[bool, typer.Option("--again", help="Repeat tests that are finished.")] = False,
) -> None:
    """Test a finished run, or all cells of a run folder, on held-out data and write results.json.

    Recipes may add shifted and out-of-distribution data. Saved results are shown; with --again, or where
    there are none, the data are read, and refused if they have changed since the training.
    """
    from sgpa.core.devices import check_device
    from sgpa.experiments.runner import (
        evaluate_cell,
        finished_cells,
        locked,
        rows_of,
        saved_results,
        write_results,
    )

    check_device(device)
    cells = finished_cells(run)
    chosen = [cell for cell in cells if again or not (cell.folder / "results.json").exists()]
    with ProgressBars() as bars:
        for run_folder, plan, seed in rows_of(chosen, data_dir=data_dir, device=device):
            with locked(run_folder.directory):
                evaluate_cell(run_folder, plan, seed, bars.on_progress, again=again)
    results = saved_results(run)
    if chosen and (run / "recipe.json").exists():
        write_results(run, results)
    if as_json:
        show_json(results["records"])
        return
    show_tables(results)
    typer.echo(f"Numbers: {(run if len(cells) > 1 else cells[0].folder) / 'results.json'}")
