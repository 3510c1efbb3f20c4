"""The command line. Commands are thin: they read arguments, call the package and show the outcome."""

from pathlib import Path
from typing import Annotated

import typer

from sgpa.cli.benchmark import benchmark_app, chosen_methods, conclude
from sgpa.cli.data import data_app
from sgpa.cli.options import command_line, show_error
from sgpa.cli.progress import ProgressBars
from sgpa.cli.runs import runs_app
from sgpa.cli.show import show_app
from sgpa.cli.train import train_app
from sgpa.core.errors import SgpaError

app = typer.Typer(
    help="Transformers that know when they do not know.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Example: sgpa demo",
)
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
    from sgpa.experiments import demo as job
    from sgpa.experiments.recipes import DIGITS

    with ProgressBars() as bars:
        outcome = job.run(
            out,
            bars.announce,
            methods=chosen_methods(methods, DIGITS),
            seeds=seeds,
            scale=scale,
            workers=workers,
            command=command_line(),
        )
    conclude(outcome, out)


app.add_typer(show_app)
app.add_typer(train_app, name="train")
app.add_typer(runs_app)
app.add_typer(benchmark_app)
app.add_typer(data_app, name="data")


def main() -> None:
    """Entry point: errors we foresee are one line and exit status 2; an interrupt is status 130."""
    try:
        app(standalone_mode=True)
    except (SgpaError, OSError) as error:
        show_error(error)
        raise SystemExit(2) from None
