"""The command line. Commands are thin: they read arguments, call the package and show the outcome."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sgpa.cli_data import data_app
from sgpa.cli_train import train_app
from sgpa.errors import SgpaError
from sgpa.progress import ProgressBars, console

app = typer.Typer(
    help="Transformers that know when they do not know.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data")
app.add_typer(train_app, name="train")
Seeds = Annotated[int, typer.Option(min=1, help="Independent runs to average over.")]


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Transformers that know when they do not know."""
    if show:
        from sgpa import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.command(epilog="Example: sgpa demo --out runs/demo --methods all --seeds 3")
def demo(
    out: Annotated[Path, typer.Option(help="Where to put models, results and the report.")] = Path(
        "runs/demo"
    ),
    methods: Annotated[str, typer.Option(help="Ids separated by commas, or all.")] = "sgpa,mle",
    seeds: Seeds = 3,
    scale: Annotated[float, typer.Option(min=0.01, help="Multiply all numbers of epochs by this.")] = 1.0,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; one per core by default.")] = None,
) -> None:
    """Train kernel-MLE and SGPA, or any methods, on embedded digits, compare them, and write a report.

    Needs no download. A run that was stopped goes on where it was; delete the folder to start over.
    """
    from sgpa import demo as job
    from sgpa.methods import CATALOGUE
    from sgpa.report import aggregate, headline, to_rich, write_report

    chosen = tuple(CATALOGUE) if methods == "all" else tuple(m.strip() for m in methods.split(","))
    command = " ".join(["sgpa", *sys.argv[1:]])
    with ProgressBars() as bars:
        outcome = job.run(
            out, bars.announce, methods=chosen, seeds=seeds, scale=scale, workers=workers, command=command
        )
    page = write_report(outcome.results, out)
    Console().print(to_rich(headline(aggregate(outcome.results["records"])), outcome.results["title"]))
    typer.echo(f"Report: {page}\nNumbers: {out / 'results.json'}")
    for failure in outcome.failures:
        console.print(f"[bold red]failed:[/] {failure.job}: {failure.reason}", highlight=False)
    if outcome.failures:
        raise typer.Exit(1)


@app.command(epilog="Example: sgpa report runs/demo/results.json")
def report(
    results: Annotated[Path, typer.Argument(help="A results.json that a run wrote.")],
    out: Annotated[Path | None, typer.Option(help="Where to write; beside the file by default.")] = None,
) -> None:
    """Write the report of saved results again."""
    from sgpa.files import read_json
    from sgpa.report import write_report

    typer.echo(f"Report: {write_report(read_json(results), out or results.parent)}")


def main() -> None:
    """Entry point: errors we foresee are one line and exit status 2; an interrupt is status 130."""
    try:
        app(standalone_mode=True)
    except (SgpaError, OSError) as error:
        console.print(f"[bold red]error:[/] {error}", highlight=False)
        raise SystemExit(2) from None
