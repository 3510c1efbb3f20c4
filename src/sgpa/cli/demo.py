"""`sgpa demo`: a comparison of methods on embedded digits."""

from pathlib import Path
from typing import Annotated

import typer

from sgpa.cli.benchmark import chosen_methods, conclude
from sgpa.cli.options import command_line
from sgpa.cli.progress import ProgressBars

Out = Annotated[Path, typer.Option(help="Folder for models, results and the report.")]


def demo(
    out: Out = Path("runs/demo"),
    methods: Annotated[str, typer.Option(help="Methods separated by commas, or all.")] = "sgpa,mle",
    seeds: Annotated[int, typer.Option(min=1, help="Independent runs to average over.")] = 3,
    scale: Annotated[float, typer.Option(min=0.01, help="Multiply all numbers of epochs by this.")] = 1.0,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; one per core by default.")] = None,
) -> None:
    """Train and compare methods on embedded digits, and write a report. Needs no download.

    Re-run the same command to resume; delete the folder to start over.
    """
    from sgpa.experiments import demo as job
    from sgpa.experiments.recipes import DIGITS

    with ProgressBars() as bars:
        outcome = job.run(
            out,
            bars.on_progress,
            methods=chosen_methods(methods, DIGITS),
            seeds=seeds,
            scale=scale,
            workers=workers,
            command=command_line(),
        )
    conclude(outcome, out, job.CAVEAT)
