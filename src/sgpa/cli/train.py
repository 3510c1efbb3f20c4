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
    from sgpa.data import Dataset
    from sgpa.experiments.recipes.user_data import UserData
    from sgpa.experiments.runner import RunFolder

AUTO = "auto"


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
Compare = Annotated[bool, typer.Option("--compare", help="Also train a point model (MLE) to compare with.")]


@train_app.command(epilog="Example: sgpa train images photos/ --steps 3000")
def images(
    directory: Annotated[Path, typer.Argument(help="One sub-folder of images per class.")],
    out: Out = None,
    size: Annotated[int, typer.Option(min=4, help="Images are cropped to squares of so many pixels.")] = 32,
    method: UserMethod = AUTO,
    compare: Compare = False,
    steps: Steps = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    lr: Lr = None,
    seed: Seed = 0,
    settings: Settings = None,
    device: Device = "cpu",
) -> None:
    """Train a classifier of images, test it and write a report. Re-run the same command to resume."""
    from sgpa.experiments.tasks import ImageFolderConfig

    task = ImageFolderConfig(path=str(directory.resolve()), size=size, split_seed=seed)
    optim = {"steps": steps, "epochs": epochs, "batch_size": batch_size, "lr": lr}
    _train_user_data(task, "images", method, compare, optim, out, seed, settings or [], device)


@train_app.command(epilog="Example: sgpa train text reviews.csv --label stars")
def text(
    file: Annotated[Path, typer.Argument(help="CSV, TSV or Parquet with a text and a label column.")],
    out: Out = None,
    column: Annotated[str | None, typer.Option(help="The column of texts; guessed by default.")] = None,
    label: Annotated[str | None, typer.Option(help="The column of labels; guessed by default.")] = None,
    vocabulary: Annotated[int, typer.Option(min=300, help="Size of the tokenizer's vocabulary.")] = 8000,
    method: UserMethod = AUTO,
    compare: Compare = False,
    steps: Steps = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    lr: Lr = None,
    seed: Seed = 0,
    settings: Settings = None,
    device: Device = "cpu",
) -> None:
    """Train a classifier of texts, test it and write a report. Re-run the same command to resume."""
    from sgpa.experiments.tasks import TextTableConfig

    task = TextTableConfig(
        path=str(file.resolve()),
        text_column=column,
        label_column=label,
        vocabulary=vocabulary,
        split_seed=seed,
    )
    optim = {"steps": steps, "epochs": epochs, "batch_size": batch_size, "lr": lr}
    with rename_arguments_in_errors({"text_column": "--column", "label_column": "--label"}):
        _train_user_data(task, "texts", method, compare, optim, out, seed, settings or [], device)


@train_app.command(epilog="Example: sgpa train molecules solubility.csv --target logS")
def molecules(
    file: Annotated[Path, typer.Argument(help="CSV or Parquet with a column of SMILES and one of numbers.")],
    out: Out = None,
    smiles: Annotated[str | None, typer.Option(help="The column of SMILES; guessed by default.")] = None,
    target: Annotated[str | None, typer.Option(help="The column of numbers; guessed by default.")] = None,
    method: UserMethod = AUTO,
    compare: Compare = False,
    steps: Steps = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    lr: Lr = None,
    seed: Seed = 0,
    settings: Settings = None,
    device: Device = "cpu",
) -> None:
    """Train a regression of molecules, test it and write a report (needs the extra `graph`)."""
    from sgpa.experiments.tasks import MoleculeTableConfig

    task = MoleculeTableConfig(
        path=str(file.resolve()), smiles_column=smiles, target_column=target, split_seed=seed
    )
    optim = {"steps": steps, "epochs": epochs, "batch_size": batch_size, "lr": lr}
    with rename_arguments_in_errors({"smiles_column": "--smiles", "target_column": "--target"}):
        _train_user_data(task, "molecules", method, compare, optim, out, seed, settings or [], device)


def _methods(method: str, compare: bool, validation: "Dataset") -> tuple[str, ...]:
    """The methods to train; "auto": SGPA and the point model, with a temperature if one can be fitted."""
    targets = validation.targets
    several = not targets.is_floating_point() and bool((targets != targets[0]).any())
    chosen = ("sgpa", "ts" if several else "mle") if method == AUTO else (method_id(method),)
    return tuple(dict.fromkeys((*chosen, *(("mle",) if compare else ()))))


def _train_user_data(
    task: "UserData",
    kind: str,
    method: str,
    compare: bool,
    optim: dict[str, Any],
    out: Path | None,
    seed: int,
    settings: list[str],
    device: str,
) -> None:
    """Train and test methods, choose one if `method` is auto, and write results and report of all cells."""
    from sgpa.core.devices import check_device
    from sgpa.experiments.recipes import plans
    from sgpa.experiments.recipes.user_data import user_recipe
    from sgpa.experiments.runner import RunFolder, collect, finished_cells, run_cells, write_results
    from sgpa.experiments.runner.run_folder import load_task
    from sgpa.report import write_report
    from sgpa.training import process_group

    check_device(device)
    with console.status("reading the data"):
        splits = load_task(task, seed, None).splits
    methods = _methods(method, compare, splits.validation)
    recipe = user_recipe(task, len(splits.train), methods=methods, **optim)
    out = out or Path("runs") / recipe.name
    run_folder = RunFolder.of(recipe, out, settings, device=device)
    run_folder.check()
    if process_group.leader():
        _announce(run_folder, seed)
    with ProgressBars() as bars:
        run_cells(run_folder, plans(run_folder.recipe), seed, bars.on_progress)
    if not process_group.leader():
        return
    comparison = _choose(run_folder, seed) if method == AUTO else ""
    cells = [cell.folder for cell in finished_cells(out)]
    title = f"{recipe.name}: {len(splits.train) + len(splits.validation)} {kind}"
    results = collect(cells, run_folder.recipe, command=command_line(), title=title)
    page = write_report(write_results(out, results), out)
    show_tables(results)
    typer.echo(comparison, nl=bool(comparison))
    typer.echo(f"Report: {page}\nRun: {out}\nNext: sgpa predict {out} FILES")


def _announce(run_folder: "RunFolder", seed: int) -> None:
    """One line: how many rows there are and how long the training takes."""
    from sgpa.experiments.recipes import plans
    from sgpa.training.fit_display import estimate_seconds, in_words

    task = run_folder.task(seed)
    train, validation, test = (
        len(part) for part in (task.splits.train, task.splits.validation, task.splits.test)
    )
    longest = max(plans(run_folder.recipe), key=lambda plan: len(plan.stages))
    seconds = estimate_seconds(longest, run_folder.model(task), task.splits.train, seed)
    text = f"{train} rows to train on, {validation} held out, {test} to test: training takes at most "
    console.print(text + in_words(seconds), markup=False, highlight=False, soft_wrap=True)


def _choose(run_folder: "RunFolder", seed: int) -> str:
    """Make the method that is better on held-out rows the folder's first; returns the comparison in words."""
    from sgpa.experiments.recipes import plans
    from sgpa.inference.saved import read_saved
    from sgpa.training.compare import compare

    predictors = {
        plan.method.id: read_saved(run_folder.cell(plan, seed)).open(run_folder.device).predictor
        for plan in plans(run_folder.recipe)
    }
    comparison = compare(predictors, run_folder.task(seed).splits.validation)
    run_folder.prefer(comparison.chosen)
    return str(comparison)


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
