"""`sgpa data`: list, fetch, check and corrupt data sets; get the language model of CoLA."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sgpa.cli.options import AsJson, DataDir, Device, show_json
from sgpa.cli.progress import ProgressBars, console

data_app = typer.Typer(
    help="List, fetch and check the data sets.", no_args_is_help=True, epilog="Example: sgpa data list"
)
Name = Annotated[str, typer.Argument(help="A data set; `sgpa data list` shows them.", show_default=False)]


@data_app.command("list", epilog="Example: sgpa data list --data-dir data")
def list_sets(
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List all data sets: what they are, how many rows they have and where they are."""
    from sgpa.data.public_sets import SOURCES
    from sgpa.data.sources import state

    states = [state(name, data_dir) for name in SOURCES]
    if as_json:
        show_json([state.plain() for state in states])
        return
    table = Table("name", "what", "rows", "folder", "prepared", box=None, pad_edge=False)
    for one in states:
        rows = "\n".join(f"{split} {_count(*counts)}" for split, counts in one.rows.items())
        folder = str(one.folder) if one.folder else "-"
        prepared = one.problem or ("yes" if one.prepared else "no" if not one.folder else "in part")
        table.add_row(one.name, one.what, rows, escape(folder), escape(prepared))
    table.add_row("digits", "handwritten digits 8 x 8, 10 classes", "all 1,797", "part of sgpa", "yes")
    Console().print(table)
    if not all(one.prepared for one in states):
        console.print("To get one: sgpa data prepare NAME", highlight=False)


@data_app.command(epilog="Example: sgpa data prepare cifar10")
def prepare(
    name: Name,
    data_dir: DataDir = None,
    own_copy: Annotated[
        Path | None,
        typer.Option(
            "--from",
            exists=True,
            help="The official archive, if you have it; for mini_imagenet a folder of images by class.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Fetch a data set from its official address, check it and convert it to Parquet.

    Run the same command again to resume a download that broke off. Without --data-dir the set goes to the
    cache.
    """
    from sgpa.data.prepare import prepare as prepare_set
    from sgpa.data.public_sets import source

    terms = source(name).terms
    with ProgressBars() as bars:
        folder = prepare_set(name, data_dir, own_copy=own_copy, progress=bars.on_progress)
    typer.echo(f"{name} is ready: {folder}\nTerms: {terms}")


@data_app.command(epilog="Example: sgpa data verify cifar10 --data-dir data")
def verify(name: Name, data_dir: DataDir = None) -> None:
    """Check the files of a data set: rows, columns and, where they are known, checksums.

    The exit status is 1 if a split is missing, 2 if a file is wrong.
    """
    from sgpa.data import sources

    checked = sources.verify(name, data_dir)
    for part in checked:
        if part.files:
            sums = f"{part.checksums} of {len(part.files)} checksums known and right"
            count = _count(part.rows, part.expected)
            typer.echo(f"{name} {part.split}: {count} rows, columns right, {sums} ({part.files[0].parent})")
        else:
            typer.echo(f"{name} {part.split}: missing")
    if not all(part.files for part in checked):
        raise typer.Exit(1)


@data_app.command(epilog="Example: sgpa data corrupt cifar10")
def corrupt(name: Name, data_dir: DataDir = None) -> None:
    """Write the corrupted test images of CIFAR-10 or CIFAR-100, 2.3 GB, for all runs.

    Without them every evaluation corrupts the images again, which takes a minute or two on all cores. The
    files have the layout of the published ones. Published files in CIFAR-10-C or CIFAR-100-C of the same
    data folder take precedence.
    """
    from sgpa.core.errors import InputError
    from sgpa.data.corruptions import on_disk
    from sgpa.data.images.cifar import OOD_SETS, load_images

    if name not in OOD_SETS:
        raise InputError(f"corrupt: {name!r} has no corrupted set; choose {' or '.join(OOD_SETS)}")
    with ProgressBars() as bars:
        bars.on_progress(f"corrupt {name}", 0, 1, "reading the images")
        images, _ = load_images(name, "test", data_dir)

        def show(kind: str, done: int, total: int) -> None:
            bars.on_progress(f"corrupt {name}", done, total, kind)

        folder = on_disk.write(name, images, data_dir, on_progress=show)
    typer.echo(f"{name}, corrupted: {folder}")


@data_app.command("language-model", epilog="Example: sgpa data language-model --minutes 60")
def language_model(
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the texts.")] = 10,
    minutes: Annotated[
        float | None, typer.Option(help="Time limit of the training.", show_default=False)
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Sentences in a step; 1024 fit on a large GPU.")
    ] = 256,
    published: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="OPTIONS WEIGHTS",
            help="Read published ELMo weights (an options JSON file and an HDF5 file) instead of training.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the model. By default the one that CoLA's recipe reads.")
    ] = None,
    data_dir: DataDir = None,
    device: Device = "cpu",
) -> None:
    """Get the language model whose features are inputs of CoLA: train it on IMDB, or read published weights.

    Training uses the 50,000 reviews of IMDB without their labels. Run the same command again to resume a
    training that was stopped.
    """
    from sgpa.core.devices import check_device
    from sgpa.data.language_model.features import language_model_dir

    folder = out or language_model_dir()
    if published is not None:
        _read_published(published, folder)
    else:
        check_device(device)
        _train_language_model(folder, epochs, minutes, batch_size, data_dir, device)
    typer.echo(f"Language model: {folder}")


def _read_published(files: tuple[Path, Path], folder: Path) -> None:
    """Save a published model in a folder that has none."""
    from sgpa.core.errors import InputError
    from sgpa.data.language_model.published import load_published

    options, weights = sorted(files, key=lambda file: file.suffix.lower() != ".json")
    if (folder / "elmo.json").exists():
        raise InputError(f"{folder} has a language model; delete it, or name another folder with --out")
    load_published(options, weights).save(folder)


def _train_language_model(
    folder: Path, epochs: int, minutes: float | None, batch_size: int, data_dir: Path | None, device: str
) -> None:
    """Train on IMDB's texts, or resume, and save the model."""
    from sgpa.core.errors import InputError
    from sgpa.data.language_model.training import (
        CHECKPOINT,
        LanguageProgress,
        LanguageRecipe,
        train_language_model,
    )
    from sgpa.data.sources import find
    from sgpa.data.texts.tables import read_unlabelled

    recipe = LanguageRecipe(epochs=epochs, batch_size=batch_size, minutes=minutes)
    if (folder / "elmo.json").exists() and not (folder / CHECKPOINT).exists():
        raise InputError(
            f"{folder} has a language model that was not trained here; "
            "delete it, or name another folder with --out"
        )
    files = [*find("imdb", "train", data_dir), *find("imdb", "test", data_dir)]
    with ProgressBars() as bars:
        work, last = "language model", {"perplexity": ""}
        bars.on_progress(work, 0, 1000, "reading the texts")
        texts = [text for file in files for text in read_unlabelled(file)]
        bars.on_progress(work, 0, 1000, f"collecting the words of {len(texts):,} texts")

        def show(line: LanguageProgress) -> None:
            timed = line.seconds / (60 * minutes) if minutes else 0.0
            share = min(1.0, max(line.step / line.steps, timed))
            if line.perplexity is not None:
                last["perplexity"] = f"  held-out perplexity {line.perplexity:.1f}"
            note = f"step {line.step:,}/{line.steps:,}  loss {line.loss:.3f}{last['perplexity']}"
            bars.on_progress(work, int(1000 * share), 1000, note)  # 1000 only at the end

        model = train_language_model(texts, recipe=recipe, directory=folder, device=device, report=show)
    model.save(folder)


def _count(present: int, whole: int) -> str:
    return f"{whole:,}" if present == whole else f"{present:,} of {whole:,}"
