"""`sgpa train`: one method of a recipe, or of a user's images, texts or molecules."""

from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sgpa.cli.options import (
    DataDir,
    Device,
    Settings,
    rename_arguments_in_errors,
    require_file,
    require_folder,
    require_writable,
)
from sgpa.cli.progress import ProgressBars
from sgpa.cli.train_user_data import AUTO, absolute, train_user_data
from sgpa.core.errors import ConfigError, nearest
from sgpa.core.names import RECIPE_NAMES, method_id


class TrainGroup(TyperGroup):
    """The commands below `sgpa train`; an unknown one gets similar names."""

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

Out = Annotated[Path | None, typer.Option(help="Run folder; runs/<name> by default.")]
Method = Annotated[str, typer.Option(help="`sgpa methods` lists them.")]
UserMethod = Annotated[
    str,
    typer.Option(help="auto: the better of SGPA and a point model on held-out rows; or see `sgpa methods`."),
]
Steps = Annotated[int | None, typer.Option(min=2, help="Steps of training, both stages together.")]
Epochs = Annotated[int | None, typer.Option(min=2, help="Passes over the training rows, instead of --steps.")]
Lr = Annotated[float | None, typer.Option(help="Initial learning rate.")]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Rows per step.")]
Seed = Annotated[int, typer.Option(help="Random seed, 0 or more.")]
MaxError = Annotated[
    float | None,
    typer.Option(
        help="Accepted share of wrong answers among the trusted ones. By default half of the model's own "
        "error, at most 0.1.",
        show_default=False,
    ),
]
MaxReach = Annotated[
    float | None,
    typer.Option(
        "--max-error",
        help="Trust an answer if the half-width of its 90 % interval is at most this value, in the "
        "unit of the target.",
        show_default=False,
    ),
]
Backbone = Annotated[
    str | None,
    typer.Option(
        help="Learn from features of a frozen network: minilm (texts), a folder that save_pretrained wrote, "
        "or a name on the Hugging Face hub.",
        show_default=False,
    ),
]
Compare = Annotated[bool, typer.Option("--compare", help="Also train a point model (MLE) to compare with.")]


@train_app.command(epilog="Example: sgpa train images photos/ --steps 3000")
def images(
    directory: Annotated[Path, typer.Argument(help="One sub-folder of images per class.")],
    out: Out = None,
    size: Annotated[
        int, typer.Option(min=4, help="Side of the square that images are cropped to, in pixels.")
    ] = 32,
    backbone: Backbone = None,
    method: UserMethod = AUTO,
    compare: Compare = False,
    max_error: MaxError = None,
    steps: Steps = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    lr: Lr = None,
    seed: Seed = 0,
    settings: Settings = None,
    device: Device = "cpu",
) -> None:
    """Train a classifier of images, test it and write a report. Re-run the same command to resume."""
    require_folder(directory, "a folder with one sub-folder of images per class")
    require_writable(out)
    from sgpa.experiments.tasks import ImageFolderConfig

    task = ImageFolderConfig(
        path=str(directory.resolve()),
        size=size,
        split_seed=seed,
        split="stratified",
        augment="none" if backbone else "auto",
        backbone=absolute(backbone),
    )
    given = {"steps": steps, "epochs": epochs, "batch_size": batch_size, "lr": lr, "max_error": max_error}
    train_user_data(task, "images", method, compare, given, out, seed, settings or [], device)


@train_app.command(epilog="Example: sgpa train text reviews.csv --label stars")
def text(
    file: Annotated[Path, typer.Argument(help="CSV, TSV or Parquet with a text and a label column.")],
    out: Out = None,
    column: Annotated[str | None, typer.Option(help="The column of texts; guessed by default.")] = None,
    label: Annotated[str | None, typer.Option(help="The column of labels; guessed by default.")] = None,
    vocabulary: Annotated[int, typer.Option(min=300, help="Size of the tokenizer's vocabulary.")] = 8000,
    backbone: Backbone = None,
    method: UserMethod = AUTO,
    compare: Compare = False,
    max_error: MaxError = None,
    steps: Steps = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    lr: Lr = None,
    seed: Seed = 0,
    settings: Settings = None,
    device: Device = "cpu",
) -> None:
    """Train a classifier of texts, test it and write a report. Re-run the same command to resume."""
    require_file(file, "a CSV, TSV or Parquet file with a text and a label column")
    require_writable(out)
    from sgpa.experiments.tasks import TextTableConfig

    task = TextTableConfig(
        path=str(file.resolve()),
        text_column=column,
        label_column=label,
        vocabulary=vocabulary,
        lowercase=True,
        words=True,
        pairs=True,
        split_seed=seed,
        split="stratified",
        backbone=absolute(backbone),
    )
    given = {"steps": steps, "epochs": epochs, "batch_size": batch_size, "lr": lr, "max_error": max_error}
    with rename_arguments_in_errors({"text_column": "--column", "label_column": "--label"}):
        train_user_data(task, "texts", method, compare, given, out, seed, settings or [], device)


@train_app.command(epilog="Example: sgpa train molecules solubility.csv --target logS")
def molecules(
    file: Annotated[Path, typer.Argument(help="CSV or Parquet with a column of SMILES and one of numbers.")],
    out: Out = None,
    smiles: Annotated[str | None, typer.Option(help="The column of SMILES; guessed by default.")] = None,
    target: Annotated[str | None, typer.Option(help="The column of numbers; guessed by default.")] = None,
    method: UserMethod = AUTO,
    compare: Compare = False,
    max_error: MaxReach = None,
    steps: Steps = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    lr: Lr = None,
    seed: Seed = 0,
    settings: Settings = None,
    device: Device = "cpu",
) -> None:
    """Train a regression of molecules, test it and write a report (needs the extra `graph`)."""
    require_file(file, "a CSV or Parquet file with a column of SMILES and one of numbers")
    require_writable(out)
    from sgpa.experiments.tasks import MoleculeTableConfig

    task = MoleculeTableConfig(
        path=str(file.resolve()),
        smiles_column=smiles,
        target_column=target,
        split_seed=seed,
        split="stratified",
    )
    given = {"steps": steps, "epochs": epochs, "batch_size": batch_size, "lr": lr, "max_error": max_error}
    with rename_arguments_in_errors({"smiles_column": "--smiles", "target_column": "--target"}):
        train_user_data(task, "molecules", method, compare, given, out, seed, settings or [], device)


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
    """Train and calibrate one method of a recipe with one seed."""
    from sgpa.core.devices import check_device
    from sgpa.experiments.recipes import plan
    from sgpa.experiments.runner import RunFolder, run_cells
    from sgpa.training import process_group

    check_device(device)
    run_folder = RunFolder.of(name, out, settings, data_dir=data_dir, device=device)
    row = plan(run_folder.recipe, method_id(method), attention)
    with ProgressBars() as bars:
        run_cells(run_folder, [row], seed, bars.on_progress, evaluate=False)
    if process_group.leader():
        cell = run_folder.cell(row, seed)
        typer.echo(f"Run: {cell}\nNext: sgpa evaluate {quote(str(cell))}")


def _command(name: str) -> Callable[..., None]:
    def command(
        method: Method = "sgpa",
        seed: Seed = 0,
        attention: Annotated[str, typer.Option(help="kernel or sdp (dot product).")] = "kernel",
        out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs") / name,
        settings: Settings = None,
        device: Device = "cpu",
        data_dir: DataDir = None,
    ) -> None:
        train_recipe(name, method, attention, seed, out, settings or [], device, data_dir)

    command.__doc__ = f"""Train one method of the recipe {name} with one seed, and calibrate it.

    Re-run the same command to resume. Trainings that methods share are run once.
    """
    return command


for _name in RECIPE_NAMES:
    train_app.command(_name, epilog=f"Example: sgpa train {_name} --method sgpa --seed 0")(_command(_name))
