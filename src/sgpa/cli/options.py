"""What several commands share: options, and how results and errors are shown."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from sgpa.cli.progress import console
from sgpa.core.errors import ConfigError, InputError, disk_full
from sgpa.core.pretrained import located

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
        help="Change a field of the recipe; may be given several times. `sgpa recipes NAME` lists them. "
        "For SGPA use stage1.epochs and stage2.epochs; optim.epochs is for methods of one stage.",
        show_default=False,
    ),
]
Run = Annotated[
    Path,
    typer.Argument(
        help="A run folder such as runs/photos, or a cell of it such as runs/cifar10/cells/kernel-sgpa-0; "
        "`predict` also takes digits and cifar10, models that come with the package.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


RUN_FOLDER = "the folder of a run, such as runs/photos"


def command_line() -> str:
    """The command as it was typed."""
    return " ".join(["sgpa", *sys.argv[1:]])


def words(listed: str) -> tuple[str, ...]:
    """Words separated by commas, each once."""
    return tuple(dict.fromkeys(word.strip() for word in listed.split(",") if word.strip()))


def saved_predictor(run: Path) -> "SavedPredictor":
    """The predictor that a folder means; of several cells the chosen one, else SGPA."""
    run = located(run)
    require_folder(run, RUN_FOLDER)
    from sgpa.experiments.load import read_cell
    from sgpa.inference.preferred import preferred_cell

    cell, others = preferred_cell(run)
    if others:
        text = f"Using {cell.folder}, one of {others + 1} models; name another folder to use it"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    return read_cell(cell)


def require_folder(path: Path, what: str) -> None:
    """Raise unless a path is a folder. Imports nothing, so that a wrong path is an error at once."""
    if not path.is_dir():
        raise InputError(f"{path} is not a folder; name {what}")


def require_path(path: Path) -> None:
    """Raise unless there is a file or a folder."""
    if not path.exists():
        raise InputError(f"{path} does not exist; check the path")


def require_file(path: Path, what: str) -> None:
    """Raise unless a path is a file."""
    if not path.is_file():
        raise InputError(f"{path} does not exist, or is not a file; name {what}")


def require_writable(out: Path | None) -> None:
    """Raise unless a folder can be made, or written to."""
    if out is None:
        out = Path("runs")
    there = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not there.is_dir():
        raise InputError(f"--out {out}: {there} is a file; name a folder for the run")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"--out {out}: {there} cannot be written to; name another folder")


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


def show_judgement(results: Mapping[str, Any]) -> None:
    """How good the model of a user's run is, and its problems in red."""
    from sgpa.report import judge

    judgement = judge(results)
    if judgement is None:
        return
    shown = Console()
    shown.print(judgement.summary, markup=False, highlight=False, soft_wrap=True)
    for problem in judgement.problems:
        shown.print("[bold red]Warning:[/]", end=" ")
        shown.print(problem, markup=False, highlight=False, soft_wrap=True)


def show_doubt(run: Path) -> None:
    """A line where the limit of trust of a run is an estimate, and one where novelty was not measured."""
    from sgpa.inference.saved import finished_cells, read_saved

    cell = finished_cells(run)[0]
    rule = read_saved(cell.folder, cell.metadata).rule
    for sentence in rule.doubts:
        typer.echo(sentence)


def show_error(error: object) -> None:
    """Print an error as one line."""
    console.print("[bold red]error:[/]", end=" ")
    full = isinstance(error, OSError) and disk_full(error)
    advice = "; free some space and re-run the same command" if full else ""
    text = (
        " ".join(f"{error}{advice}".split())
        .encode("utf-8", "surrogateescape")
        .decode("utf-8", "backslashreplace")
    )
    console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def rename_arguments_in_errors(options: Mapping[str, str]) -> Iterator[None]:
    """Make errors inside the block name options of the command line instead of arguments of functions."""
    try:
        yield
    except (InputError, ConfigError) as error:
        text = str(error)
        for argument, option in options.items():
            text = text.replace(argument, option)
        raise type(error)(text) from None
