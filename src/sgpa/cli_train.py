"""`sgpa train`: a model for one's own images, texts or molecules."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sgpa.progress import ProgressBars, console

train_app = typer.Typer(help="Train on your own data and get a model and a report.", no_args_is_help=True)

Out = Annotated[Path | None, typer.Option(help="Where to put model and report; runs/<name> by default.")]
Epochs = Annotated[int, typer.Option(min=2, help="Passes over the training rows, warm start included.")]
Lr = Annotated[float, typer.Option(help="Initial learning rate.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Rows per step.")]
Seed = Annotated[int, typer.Option(help="Everything random follows from it.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Compare = Annotated[bool, typer.Option("--compare", help="Also train a point model (MLE) to compare with.")]


@train_app.command(epilog="Example: sgpa train images photos/ --epochs 50")
def images(
    directory: Annotated[Path, typer.Argument(help="One sub-folder of images per class.")],
    out: Out = None,
    size: Annotated[int, typer.Option(min=4, help="Images are cropped to squares of so many pixels.")] = 32,
    epochs: Epochs = 100,
    batch_size: BatchSize = 100,
    lr: Lr = 5e-4,
    seed: Seed = 0,
    device: Device = "cpu",
    compare: Compare = False,
) -> None:
    """Learn to tell the classes of a folder of images."""
    from sgpa import own

    _run(lambda: own.images(directory, size, seed), out, epochs, batch_size, lr, seed, device, compare)


@train_app.command(epilog="Example: sgpa train text reviews.csv --label stars")
def text(
    file: Annotated[Path, typer.Argument(help="CSV, TSV or Parquet with a text and a label column.")],
    out: Out = None,
    column: Annotated[str | None, typer.Option(help="The column of texts; guessed by default.")] = None,
    label: Annotated[str | None, typer.Option(help="The column of labels; guessed by default.")] = None,
    vocabulary: Annotated[int, typer.Option(min=300, help="Size of the tokenizer's vocabulary.")] = 8000,
    epochs: Epochs = 20,
    batch_size: BatchSize = 32,
    lr: Lr = 1e-3,
    seed: Seed = 0,
    device: Device = "cpu",
    compare: Compare = False,
) -> None:
    """Learn to label texts."""
    from sgpa import own

    make = lambda: own.text(file, column, label, vocabulary, seed)  # noqa: E731
    _run(make, out, epochs, batch_size, lr, seed, device, compare)


@train_app.command(epilog="Example: sgpa train molecules solubility.csv --target logS")
def molecules(
    file: Annotated[Path, typer.Argument(help="CSV or Parquet with a column of SMILES and one of numbers.")],
    out: Out = None,
    smiles: Annotated[str | None, typer.Option(help="The column of SMILES; guessed by default.")] = None,
    target: Annotated[str | None, typer.Option(help="The column of numbers; guessed by default.")] = None,
    epochs: Epochs = 100,
    batch_size: BatchSize = 64,
    lr: Lr = 4e-4,
    seed: Seed = 0,
    device: Device = "cpu",
    compare: Compare = False,
) -> None:
    """Learn to predict a number for molecules (needs the extra `graph`)."""
    from sgpa import own

    _run(
        lambda: own.molecules(file, smiles, target, seed), out, epochs, batch_size, lr, seed, device, compare
    )


def _run(
    make: Callable[[], Any],
    out: Path | None,
    epochs: int,
    batch_size: int,
    lr: float,
    seed: int,
    device: str,
    compare: bool,
) -> None:
    from sgpa import own
    from sgpa.fit import Fit
    from sgpa.logs import in_words
    from sgpa.report import aggregate, headline, to_rich, write_report

    with console.status("reading the data"):
        task = make()
    out = out or Path("runs") / task.name
    with ProgressBars() as bars:

        def tell(line: dict[str, Any]) -> None:
            bars.announce(line["run"], line["epoch"], line["epochs"], in_words(line, line["epochs"]))

        how = Fit(epochs=epochs, batch_size=batch_size, lr=lr, seed=seed, device=device, report=tell)
        command = " ".join(["sgpa", *sys.argv[1:]])
        results = own.train(task, out, how, compare=compare, command=command)
    page = write_report(results, out)
    Console().print(to_rich(headline(aggregate(results["records"])), results["title"]))
    typer.echo(f"Report: {page}\nModel: {out / 'sgpa' / 'model'}  (sgpa.load reads it)")
