"""`sgpa train`: one method of a recipe, or a model for one's own images, texts or molecules."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sgpa.cli.options import (
    DataDir,
    Device,
    Settings,
    command_line,
    refuse_own,
    rename_arguments_in_errors,
    show_tables,
)
from sgpa.cli.progress import ProgressBars, console
from sgpa.core.errors import ConfigError, SgpaError, nearest

RECIPE_NAMES = (  # those of sgpa.experiments.recipes, without waiting for its imports
    "cifar10",
    "cifar10-augmented",
    "cifar100",
    "cifar100-augmented",
    "imdb",
    "cola",
    "zinc",
    "digits",
)


class TrainGroup(TyperGroup):
    """Its commands are recipes too, so an unknown one is met with the names that are near."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is named first."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            near = nearest(args[0], [*RECIPE_NAMES, "images", "text", "molecules"])
            raise ConfigError(f"unknown recipe {args[0]!r}{near}")
        return super().resolve_command(ctx, args)


train_app = typer.Typer(
    cls=TrainGroup,
    help="Train one method of a recipe (`sgpa train cifar10 --method sgpa`), or a model for your own data.",
    no_args_is_help=True,
    epilog="Example: sgpa train images photos/",
)

Out = Annotated[Path | None, typer.Option(help="Where to put model and report; runs/<name> by default.")]
Epochs = Annotated[int, typer.Option(min=2, help="Passes over the training rows, warm start included.")]
Lr = Annotated[float, typer.Option(help="Initial learning rate.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Rows per step.")]
Seed = Annotated[int, typer.Option(help="Everything random follows from it.")]
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
    from sgpa.experiments import user_data

    _run(lambda: user_data.images(directory, size, seed), out, epochs, batch_size, lr, seed, device, compare)


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
    from sgpa.experiments import user_data

    with rename_arguments_in_errors({"text_column": "--column", "label_column": "--label"}):
        make = lambda: user_data.text(file, column, label, vocabulary, seed)  # noqa: E731
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
    from sgpa.experiments import user_data

    with rename_arguments_in_errors({"smiles_column": "--smiles", "target_column": "--target"}):
        make = lambda: user_data.molecules(file, smiles, target, seed)  # noqa: E731
        _run(make, out, epochs, batch_size, lr, seed, device, compare)


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
    from sgpa.experiments import user_data
    from sgpa.report import write_report
    from sgpa.training.fit import Fit
    from sgpa.training.logs import in_words

    with console.status("reading the data"):
        task = make()
    out = out or Path("runs") / task.name
    with ProgressBars() as bars:

        def tell(line: dict[str, Any]) -> None:
            bars.announce(line["run"], line["epoch"], line["epochs"], in_words(line, line["epochs"]))

        how = Fit(epochs=epochs, batch_size=batch_size, lr=lr, seed=seed, device=device, report=tell)
        results = user_data.train(task, out, how, compare=compare, command=command_line())
    page = write_report(results, out)
    show_tables(results)
    typer.echo(f"Report: {page}\nModel: {user_data.model_dir(out)}  (sgpa.load reads it)")
    typer.echo(f"Next: sgpa predict {out} FILES")


def train_recipe(
    name: str,
    method: str,
    attention: str,
    seed: int,
    out: Path,
    settings: list[str],
    device: str,
    data_dir: Path | None,
) -> None:
    """All trainings of one cell and its calibration; what is done already is not done again.

    Processes that torchrun started share every training; the first of them does the rest.
    """
    from sgpa.core.devices import check_device
    from sgpa.experiments.recipes import plan
    from sgpa.experiments.runner import RunFolder, prepare, train
    from sgpa.training import process_group

    check_device(device)
    place = RunFolder.of(name, out, settings, data_dir=data_dir, device=device)
    row = plan(place.recipe, method, attention)
    refuse_own(out)
    process_group.begin(device)
    is_new = process_group.from_leader(lambda: not (out / "recipe.json").exists())
    process_group.from_leader(place.claim)
    members = row.members(seed)
    with ProgressBars() as bars:

        def calibrate() -> None:
            bars.announce("calibrate", 0, 1)
            prepare(place, row, seed)
            bars.announce("calibrate", 1, 1)

        try:
            for member in members:
                for step in range(len(row.stages)):
                    train(place, row, step, (member,), bars.announce)
        except SgpaError:
            if is_new and not (out / "trainings").exists():
                (out / "recipe.json").unlink(
                    missing_ok=True
                )  # nothing was made that settings could differ from
            raise
        process_group.from_leader(calibrate)
    if process_group.leader():
        cell = place.cell(row, seed)
        typer.echo(f"Run: {cell}\nNext: sgpa evaluate {cell}")


def _command(name: str) -> Callable[..., None]:
    def command(
        method: Annotated[str, typer.Option(help="`sgpa methods` lists them.")] = "sgpa",
        seed: Annotated[int, typer.Option(min=0, help="Everything random follows from it.")] = 0,
        attention: Annotated[str, typer.Option(help="kernel or sdp (dot product).")] = "kernel",
        out: Annotated[Path, typer.Option(help="The folder of this recipe's runs.")] = Path("runs") / name,
        settings: Settings = None,
        device: Device = "cpu",
        data_dir: DataDir = None,
    ) -> None:
        train_recipe(name, method, attention, seed, out, settings or [], device, data_dir)

    command.__doc__ = f"""Train one method of the recipe {name} with one seed, and calibrate it.

    A training that was stopped goes on where it was; trainings that methods share are done once.
    """
    return command


for _name in RECIPE_NAMES:
    train_app.command(_name, epilog=f"Example: sgpa train {_name} --method sgpa --seed 0")(_command(_name))
