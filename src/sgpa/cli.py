"""The command line. Commands are thin: they read arguments, call the package and show the outcome."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sgpa.errors import SgpaError

app = typer.Typer(
    help="Transformers that know when they do not know.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console(stderr=True)
Seeds = Annotated[int, typer.Option(min=1, help="Independent runs to average over.")]


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Transformers that know when they do not know."""
    if show:
        from sgpa import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.command(epilog="Example: sgpa demo --out runs/demo --seeds 3")
def demo(
    out: Annotated[Path, typer.Option(help="Where to put models, results and the report.")] = Path(
        "runs/demo"
    ),
    seeds: Seeds = 3,
    scale: Annotated[float, typer.Option(min=0.01, help="Multiply all numbers of epochs by this.")] = 1.0,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; one per core by default.")] = None,
) -> None:
    """Train kernel-MLE and SGPA on embedded digits, compare them, and write a report.

    Needs no download. A run that was stopped goes on where it was; delete the folder to start over.
    """
    from dataclasses import replace

    from sgpa import demo as job
    from sgpa.recipes.demo import DIGITS, scaled
    from sgpa.report import aggregate, headline, to_rich, write_report

    recipe = replace(scaled(DIGITS, scale), seeds=seeds)
    command = " ".join(["sgpa", *sys.argv[1:]])
    with ProgressBars() as bars:
        results = job.run(recipe, out, bars.announce, workers=workers, command=command)
    page = write_report(results, out)
    Console().print(to_rich(headline(aggregate(results["records"])), results["title"]))
    typer.echo(f"Report: {page}\nNumbers: {out / 'results.json'}")


@app.command(epilog="Example: sgpa report runs/demo/results.json")
def report(
    results: Annotated[Path, typer.Argument(help="A results.json that a run wrote.")],
    out: Annotated[Path | None, typer.Option(help="Where to write; beside the file by default.")] = None,
) -> None:
    """Write the report of saved results again."""
    from sgpa.files import read_json
    from sgpa.report import write_report

    typer.echo(f"Report: {write_report(read_json(results), out or results.parent)}")


class ProgressBars:
    """One line per run: bar, losses, time spent and time left."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description:<18}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:>4.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self.bar = Progress(*columns, console=console)
        self.tasks: dict[str, TaskID] = {}

    def announce(self, run: str, done: int, total: int, note: str) -> None:
        """Show that `run` has come to `done` of `total`."""
        if run not in self.tasks:
            self.tasks[run] = self.bar.add_task(run, total=total, note=note)
        self.bar.update(self.tasks[run], completed=done, note=note)

    def __enter__(self) -> "ProgressBars":
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.bar.stop()
        if kind is KeyboardInterrupt:
            console.print("stopped; run the same command again to go on")


def main() -> None:
    """Entry point: errors we foresee are one line and exit status 2; an interrupt is status 130."""
    try:
        app(standalone_mode=True)
    except (SgpaError, OSError) as error:
        console.print(f"[bold red]error:[/] {error}", highlight=False)
        raise SystemExit(2) from None
