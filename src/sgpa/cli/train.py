"""`sgpa train`: one method of a recipe, or of a user's images, texts or molecules."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from sgpa.cli.options import (
    DataDir,
    Device,
    Settings,
    command_line,
    rename_arguments_in_errors,
    show_tables,
)
from sgpa.cli.progress import ProgressBars, console
from sgpa.core.errors import ConfigError, nearest
from sgpa.core.names import RECIPE_NAMES, method_id

if TYPE_CHECKING:
    from sgpa.experiments.recipes import Recipe


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
Epochs = Annotated[int, typer.Option(min=2, help="Passes over the training rows, both stages together.")]
Lr = Annotated[float, typer.Option(help="Initial learning rate.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Rows per step.")]
Seed = Annotated[int, typer.Option(help="Random seed, 0 or more.")]
Compare = Annotated[bool, typer.Option("--compare", help="Also train a point model (MLE) to compare with.")]


@train_app.command(epilog="Example: sgpa train images photos/ --epochs 50")
def images(
    directory: Annotated[Path, typer.Argument(help="One sub-folder of images per class.")],
    out: Out = None,
    size: Annotated[int, typer.Option(min=4, help="Images are cropped to squares of so many pixels.")] = 32,
    method: Method = "sgpa",
    compare: Compare = False,
    epochs: Epochs = 100,
    batch_size: BatchSize = 100,
    lr: Lr = 5e-4,
    seed: Seed = 0,
    settings: Settings = None,
    device: Device = "cpu",
) -> None:
    """Train a classifier of images, test it and write a report. Re-run the same command to resume."""
    from sgpa.experiments.recipes import user_data

    recipe = user_data.images(
        directory,
        size=size,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        seed=seed,
        methods=_methods(method, compare),
    )
    _train_user_data(recipe, "images", out, seed, settings or [], device)


@train_app.command(epilog="Example: sgpa train text reviews.csv --label stars")
def text(
    file: Annotated[Path, typer.Argument(help="CSV, TSV or Parquet with a text and a label column.")],
    out: Out = None,
    column: Annotated[str | None, typer.Option(help="The column of texts; guessed by default.")] = None,
    label: Annotated[str | None, typer.Option(help="The column of labels; guessed by default.")] = None,
    vocabulary: Annotated[int, typer.Option(min=300, help="Size of the tokenizer's vocabulary.")] = 8000,
    method: Method = "sgpa",
    compare: Compare = False,
    epochs: Epochs = 20,
    batch_size: BatchSize = 32,
    lr: Lr = 1e-3,
    seed: Seed = 0,
    settings: Settings = None,
    device: Device = "cpu",
) -> None:
    """Train a classifier of texts, test it and write a report. Re-run the same command to resume."""
    from sgpa.experiments.recipes import user_data

    recipe = user_data.texts(
        file,
        text_column=column,
        label_column=label,
        vocabulary=vocabulary,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        seed=seed,
        methods=_methods(method, compare),
    )
    with rename_arguments_in_errors({"text_column": "--column", "label_column": "--label"}):
        _train_user_data(recipe, "texts", out, seed, settings or [], device)


@train_app.command(epilog="Example: sgpa train molecules solubility.csv --target logS")
def molecules(
    file: Annotated[Path, typer.Argument(help="CSV or Parquet with a column of SMILES and one of numbers.")],
    out: Out = None,
    smiles: Annotated[str | None, typer.Option(help="The column of SMILES; guessed by default.")] = None,
    target: Annotated[str | None, typer.Option(help="The column of numbers; guessed by default.")] = None,
    method: Method = "sgpa",
    compare: Compare = False,
    epochs: Epochs = 100,
    batch_size: BatchSize = 64,
    lr: Lr = 4e-4,
    seed: Seed = 0,
    settings: Settings = None,
    device: Device = "cpu",
) -> None:
    """Train a regression of molecules, test it and write a report (needs the extra `graph`)."""
    from sgpa.experiments.recipes import user_data

    recipe = user_data.molecules(
        file,
        smiles_column=smiles,
        target_column=target,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        seed=seed,
        methods=_methods(method, compare),
    )
    with rename_arguments_in_errors({"smiles_column": "--smiles", "target_column": "--target"}):
        _train_user_data(recipe, "molecules", out, seed, settings or [], device)


def _methods(method: str, compare: bool) -> tuple[str, ...]:
    return tuple(dict.fromkeys((method_id(method), *(("mle",) if compare else ()))))


def _train_user_data(
    recipe: "Recipe", kind: str, out: Path | None, seed: int, settings: list[str], device: str
) -> None:
    """Train and test the recipe's methods, and write results and report of all cells in the folder."""
    from sgpa.core.devices import check_device
    from sgpa.experiments.recipes import plans
    from sgpa.experiments.runner import RunFolder, collect, finished_cells, run_cells, write_results
    from sgpa.report import write_report
    from sgpa.training import process_group

    check_device(device)
    out = out or Path("runs") / recipe.name
    run_folder = RunFolder.of(recipe, out, settings, device=device)
    run_folder.check()
    with console.status("reading the data"):
        splits = run_folder.task(seed).splits
    with ProgressBars() as bars:
        run_cells(run_folder, plans(run_folder.recipe), seed, bars.on_progress)
    if not process_group.leader():
        return
    cells = [cell.folder for cell in finished_cells(out)]
    title = f"{recipe.name}: {len(splits.train) + len(splits.validation)} {kind}"
    results = collect(cells, run_folder.recipe, command=command_line(), title=title)
    page = write_report(write_results(out, results), out)
    show_tables(results)
    typer.echo(f"Report: {page}\nRun: {out}\nNext: sgpa predict {out} FILES")


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
        typer.echo(f"Run: {cell}\nNext: sgpa evaluate {cell}")


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
