"""`sgpa evaluate` and `sgpa predict`: what a finished run is worth, and what it says about new inputs."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sgpa.cli.options import AsJson, DataDir, Device, rename_arguments_in_errors, show_json, show_tables
from sgpa.cli.progress import ProgressBars, console
from sgpa.core.errors import CheckpointError

if TYPE_CHECKING:
    from sgpa.inference.answers import Answer, Trained

runs_app = typer.Typer()
Run = Annotated[
    Path,
    typer.Argument(
        help="The folder of a finished run, such as runs/cifar10/cells/kernel-sgpa-0 or runs/photos.",
        show_default=False,
    ),
]
SHOWN = 60  # characters of a text in the table


@runs_app.command(epilog="Example: sgpa evaluate runs/cifar10/cells/kernel-sgpa-0")
def evaluate(
    run: Run,
    device: Device = "cpu",
    data_dir: DataDir = None,
    as_json: AsJson = False,
    again: Annotated[bool, typer.Option("--again", help="Measure anew what was measured before.")] = False,
) -> None:
    """Test a finished run on data it never saw, and write results.json into its folder.

    A run of a recipe is also tested on shifted and on foreign data, as the recipe says.
    """
    run, about = finished_run(run)
    from sgpa.core.devices import check_device
    from sgpa.experiments import user_data
    from sgpa.experiments.runner import assess, cell_of
    from sgpa.experiments.runner.collect import saved_results

    check_device(device)
    with ProgressBars() as bars:
        if "method" in about:
            place, plan, seed = cell_of(run, data_dir=data_dir, device=device)
            assess(place, plan, seed, bars.announce, again=again)
        elif again:
            user_data.measure_again(run, device)
    results = saved_results(run)
    if as_json:
        show_json(results["records"])
        return
    show_tables(results)
    typer.echo(f"Numbers: {run / 'results.json'}")


@runs_app.command(epilog="Example: sgpa predict runs/photos holiday/ --out predictions.csv")
def predict(
    run: Run,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Images or folders of them; for texts and SMILES .txt (one a line), .csv, .tsv or .parquet.",
            show_default=False,
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", help="A text, or a SMILES; may be given several times.", show_default=False),
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="The column of texts or SMILES in tables; guessed by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the answers to this CSV file.", show_default=False)
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            help="Samples that an answer averages; 0 draws none and adds SGPA's variance in closed form. "
            "By default ten where the method samples, for which the limit of trust was chosen.",
            show_default=False,
        ),
    ] = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Say what new inputs are, how sure that is, and whether to trust it. Needs none of the training data.

    An answer is not to be trusted when its entropy (for numbers, its variance) is above a limit that 95 % of
    the right answers on held-out data stayed below.
    """
    run, about = finished_run(run)
    from sgpa.core.devices import check_device
    from sgpa.experiments import user_data
    from sgpa.experiments.runner import open_trained
    from sgpa.inference.answers import write_csv

    check_device(device)
    with console.status("reading the model"):
        opened = (open_trained if "method" in about else user_data.open_trained)(run, device=device)
    with (
        rename_arguments_in_errors(
            {"text_column": "--column", "smiles_column": "--column", "`samples`": "--samples"}
        ),
        console.status("predicting"),
    ):
        if samples is not None:
            opened = opened.with_samples(samples)
        answers = opened.answers(opened.reader.read(files or [], text or [], column))
    if out is not None:
        write_csv(answers, out)
    if as_json:
        show_json(answers)
        return
    _show(answers, opened)
    if out is not None:
        typer.echo(f"Answers: {out}")


@runs_app.command(epilog="Example: sgpa export runs/cifar10/cells/kernel-sgpa-0 models/cifar10")
def export(
    run: Run,
    folder: Annotated[Path, typer.Argument(help="A new folder.", show_default=False, file_okay=False)],
) -> None:
    """Copy what `sgpa predict` needs of a finished run, and no more, into a folder to carry elsewhere."""
    run, about = finished_run(run)
    from sgpa.experiments import runner, user_data

    (runner.export if "method" in about else user_data.export)(run, folder)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    typer.echo(f"Model: {folder} ({size / 1e6:.1f} MB)")
    typer.echo(f"Next: sgpa predict {folder} ...")


def finished_run(run: Path) -> tuple[Path, dict[str, Any]]:
    """The run that is meant and what it says about itself; an error that helps where there is none.

    It is what was named, or the only one of a folder of runs.
    """
    import json

    several = (run / "recipe.json").exists()
    cells = sorted(file.parent for file in (run / "cells").glob("*/run.json")) if several else []
    if len(cells) == 1:
        return finished_run(cells[0])
    file = run / "run.json"
    if file.is_file():
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if isinstance(found, dict) and "threshold" in found:
            return run, found
        raise CheckpointError(f"{file} does not describe a run; it was damaged or made by something else")
    if not run.is_dir():
        raise CheckpointError(f"{run} is not a folder; name the folder of a run, such as runs/photos")
    if several:
        told = (
            f"name one: {', '.join(map(str, cells))}"
            if cells
            else "none is finished yet: train one with `sgpa train`"
        )
        raise CheckpointError(f"{run} is a folder of several runs; {told}")
    raise CheckpointError(
        f"{run} holds no finished run (there is no run.json); train it to its end with `sgpa train` first"
    )


def _show(answers: "list[Answer]", opened: "Trained") -> None:
    """One line per answer."""
    numbers = "value" in answers[0]
    columns = (
        ("value", "deviation", "model_deviation", "data_deviation")
        if numbers
        else ("label", "probability", "entropy", "mutual_information")
    )
    headings = (
        ("value", "± deviation", "from the model", "from the data")
        if numbers
        else ("label", "probability", "entropy", "mutual inf.")
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("input", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "label" else "right")
    table.add_column("trust")
    for answer in answers:
        shown = [answer[name] for name in columns]
        cells = [escape(x) if isinstance(x, str) else f"{x:.4g}" if numbers else f"{x:.3f}" for x in shown]
        trust = "yes" if answer["trust"] else "[bold red]no[/]"
        table.add_row(escape(_input(answer)), *cells, trust)
    Console().print(table)
    doubtful = sum(not answer["trust"] for answer in answers)
    limit = opened.threshold**0.5 if numbers else opened.threshold
    score = "deviation" if numbers else "entropy"
    if not math.isfinite(limit):
        typer.echo("Do not trust any of these: no answer on held-out data was right.")
    elif doubtful:
        typer.echo(f"Do not trust {doubtful} of {len(answers)} answers: their {score} is above {limit:.3g}.")


def _input(answer: "Answer") -> str:
    """What an answer is about, short enough for a table."""
    said = answer.get("text", answer.get("smiles"))
    if said is None:
        return str(answer["file"])
    return said if len(said) <= SHOWN else said[: SHOWN - 3] + "..."
