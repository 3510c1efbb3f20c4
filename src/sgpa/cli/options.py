"""What several commands share: options, and how results and errors are shown."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from sgpa.cli.progress import console
from sgpa.core.errors import InputError

if TYPE_CHECKING:
    from sgpa.inference.saved import SavedPredictor

DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder with one sub-folder per data set. By default $SGPA_DATA, then the cache.",
        show_default=False,
        file_okay=False,
    ),
]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Change a field of the recipe; may be given several times. `sgpa recipes NAME` lists them.",
        show_default=False,
    ),
]
Run = Annotated[
    Path,
    typer.Argument(
        help="A run folder such as runs/photos, or a cell of it such as runs/cifar10/cells/kernel-sgpa-0.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def command_line() -> str:
    """The command as it was typed."""
    return " ".join(["sgpa", *sys.argv[1:]])


def words(listed: str) -> tuple[str, ...]:
    """Words separated by commas, each once."""
    return tuple(dict.fromkeys(word.strip() for word in listed.split(",") if word.strip()))


def saved_predictor(run: Path) -> "SavedPredictor":
    """The predictor that a folder means; of several cells the first of the recipe's methods."""
    from sgpa.inference.saved import describes_itself, finished_cells, read_saved

    cell, *others = finished_cells(run)
    if others:
        text = f"Using {cell.folder}, one of {len(others) + 1} cells; name another folder to use it"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    if describes_itself(cell.metadata):
        return read_saved(cell.folder, cell.metadata)
    from sgpa.experiments.runner.older_runs import read_older

    return read_older(cell.folder, cell.metadata)


def show_json(data: Any) -> None:
    """Print plain data on standard output."""
    from sgpa.core.files import json_text

    typer.echo(json_text(data))


def show_tables(results: Mapping[str, Any]) -> None:
    """The main table of every task."""
    from sgpa.report import aggregate, headline, tasks, to_rich

    pairs = tasks(results["records"])
    for dataset, augmentation in pairs:
        title = results.get("title") if len(pairs) == 1 else f"{dataset} {augmentation}".strip()
        Console().print(to_rich(headline(aggregate(results["records"], (dataset, augmentation))), title))


def show_error(error: object) -> None:
    """Print an error as one line."""
    console.print("[bold red]error:[/]", end=" ")
    text = " ".join(str(error).split()).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def rename_arguments_in_errors(options: Mapping[str, str]) -> Iterator[None]:
    """Make errors inside the block name options of the command line instead of arguments of functions."""
    try:
        yield
    except InputError as error:
        text = str(error)
        for argument, option in options.items():
            text = text.replace(argument, option)
        raise InputError(text) from None
