"""What several commands share: options, and how outcomes are shown."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sgpa.cli.progress import console
from sgpa.core.errors import CheckpointError, InputError

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
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def command_line() -> str:
    """What was typed."""
    return " ".join(["sgpa", *sys.argv[1:]])


def show_json(data: Any) -> None:
    """Plain data on standard output, and nothing else there."""
    typer.echo(json.dumps(data, indent=1))


def show_tables(results: Mapping[str, Any]) -> None:
    """The main table of every task."""
    from sgpa.report import aggregate, headline, tasks, to_rich

    found = tasks(results["records"])
    for dataset, augmentation in found:
        title = results.get("title") if len(found) == 1 else f"{dataset} {augmentation}".strip()
        Console().print(to_rich(headline(aggregate(results["records"], (dataset, augmentation))), title))


def show_error(error: object) -> None:
    """One line that says what is wrong."""
    console.print("[bold red]error:[/]", end=" ")
    console.print(" ".join(str(error).split()), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def rename_arguments_in_errors(options: Mapping[str, str]) -> Iterator[None]:
    """Errors inside the block name the options of the command line, not the arguments of functions."""
    try:
        yield
    except InputError as error:
        text = str(error)
        for argument, option in options.items():
            text = text.replace(argument, option)
        raise InputError(text) from None


def refuse_own(out: Path) -> None:
    """Raise where a folder holds a run of one's own data: a recipe would write over its results."""
    if (out / "run.json").exists() and not (out / "recipe.json").exists():
        raise CheckpointError(f"{out} holds a run of another kind; choose another folder")
