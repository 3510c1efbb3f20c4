"""`sgpa export`: a model that can be copied elsewhere."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from sgpa.cli.options import Run, saved_predictor


def export(
    run: Run,
    folder: Annotated[Path, typer.Argument(help="A new folder.", show_default=False, file_okay=False)],
) -> None:
    """Copy what `sgpa predict` needs of a finished run into a new folder that can be moved elsewhere."""
    saved_predictor(run).export(folder)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    typer.echo(f"Model: {folder} ({size / 1e6:.1f} MB)")
    typer.echo(f"Next: sgpa predict {quote(str(folder))} ...")
