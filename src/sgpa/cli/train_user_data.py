"""What `sgpa train images`, `text` and `molecules` share: train, test, choose and report."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import typer

from sgpa.cli.options import (
    command_line,
    rename_arguments_in_errors,
    show_doubt,
    show_judgement,
    show_tables,
)
from sgpa.cli.progress import ProgressBars, console
from sgpa.core.errors import InputError
from sgpa.core.names import method_id

if TYPE_CHECKING:
    from sgpa.data import Dataset
    from sgpa.experiments.recipes.user_data import UserData
    from sgpa.experiments.runner import RunFolder

AUTO = "auto"
FEW_ROWS = 3000  # below which pretrained features are recommended


def absolute(backbone: str | None) -> str | None:
    """A backbone's name; folders as absolute paths, so that the run can be used from anywhere."""
    return backbone if backbone is None or not Path(backbone).is_dir() else str(Path(backbone).resolve())


def _compute_features(task: "UserData") -> None:
    """Compute the features of a backbone, if there is one, under a progress bar."""
    if getattr(task, "backbone", None) is not None:
        with ProgressBars() as bars:
            task.prepare(lambda done, total: bars.on_progress("features", done, total))  # type: ignore[union-attr]


def _recommend_backbone(task: "UserData", rows: int) -> None:
    """One line where rows to learn from are few and pretrained features could be used but are not."""
    if rows < FEW_ROWS and getattr(task, "backbone", "none") is None:
        example = "--backbone minilm" if hasattr(task, "text_column") else "--backbone FOLDER_OR_HUB_NAME"
        text = (
            f"{rows} rows to learn from are few: features of a pretrained network usually help; try {example}"
        )
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def _methods(method: str, compare: bool, validation: "Dataset") -> tuple[str, ...]:
    """The methods to train; "auto": SGPA and the point model, with a temperature if one can be fitted."""
    targets = validation.targets
    several = not targets.is_floating_point() and bool((targets != targets[0]).any())
    chosen = ("sgpa", "ts" if several else "mle") if method == AUTO else (method,)
    return tuple(dict.fromkeys((*chosen, *(("mle",) if compare else ()))))


def train_user_data(
    task: "UserData",
    kind: str,
    method: str,
    compare: bool,
    given: dict[str, Any],
    out: Path | None,
    seed: int,
    settings: list[str],
    device: str,
) -> None:
    """Train and test methods, choose one if `method` is auto, and write results and report of all cells."""
    from torch import Tensor

    from sgpa.core.devices import check_device
    from sgpa.experiments.recipes import plans
    from sgpa.experiments.recipes.user_data import user_recipe
    from sgpa.experiments.runner import RunFolder, collect, finished_cells, run_cells, write_results
    from sgpa.experiments.runner.baselines import evaluate_baselines
    from sgpa.experiments.runner.calibrate import check_unchanged
    from sgpa.experiments.runner.run_folder import load_task
    from sgpa.report import write_report
    from sgpa.training import process_group

    check_device(device)
    if method != AUTO:
        method = method_id(method)  # an unknown one is refused before the data are read
    _compute_features(task)
    with console.status("reading the data"):
        splits = load_task(task, seed, None).splits
    methods = _methods(method, compare, splits.validation)
    if kind == "texts" and isinstance(splits.train.inputs, Tensor):  # token ids [N, T]
        given = given | {"tokens": splits.train.inputs.shape[1]}
    with rename_arguments_in_errors({"max_error=": "--max-error "}):
        recipe = user_recipe(task, len(splits.train), methods=methods, **given)
    out = out or Path("runs") / recipe.name
    _check_outside(out, Path(task.path))
    run_folder = RunFolder.of(recipe, out, settings, device=device)
    check_unchanged(run_folder, seed)
    run_folder.check()
    if process_group.leader():
        _recommend_backbone(task, len(splits.train) + len(splits.validation))
        _announce(run_folder, seed)
    with ProgressBars() as bars:
        run_cells(run_folder, plans(run_folder.recipe), seed, bars.on_progress)
    if not process_group.leader():
        return
    with console.status("simple baselines"):
        evaluate_baselines(run_folder, [seed])
    comparison = _choose(run_folder, seed) if method == AUTO else _worse_than_point_model(run_folder, seed)
    cells = [cell.folder for cell in finished_cells(out)]
    title = f"{recipe.name}: {sum(map(len, (splits.train, splits.validation, splits.test)))} {kind}"
    results = collect(cells, RunFolder.at(out).recipe, command=command_line(), title=title)
    page = write_report(write_results(out, results), out)
    show_tables(results)
    typer.echo(comparison, nl=bool(comparison))
    show_judgement(results)
    show_doubt(out)
    typer.echo(f"Report: {page}\nRun: {out}\nNext: sgpa predict {quote(str(out))} FILES")


def _check_outside(out: Path, data: Path) -> None:
    """Raise where the run would lie among the images, whose folders are read as classes."""
    if data.is_dir() and out.resolve().is_relative_to(data.resolve()):
        raise InputError(f"--out {out} lies in the folder of the images, {data}; name a folder outside of it")


def _announce(run_folder: "RunFolder", seed: int) -> None:
    """One line: how many rows there are and how long the training takes."""
    from sgpa.experiments.recipes import plans
    from sgpa.training.fit_display import estimate_seconds, in_words

    task = run_folder.task(seed)
    train, validation, test = (
        len(part) for part in (task.splits.train, task.splits.validation, task.splits.test)
    )
    longest = max(plans(run_folder.recipe), key=lambda plan: len(plan.stages))
    seconds = estimate_seconds(longest, run_folder.model(task), task.splits.train, seed, run_folder.device)
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


def _worse_than_point_model(run_folder: "RunFolder", seed: int) -> str:
    """A sentence where SGPA is worse on held-out rows than the point model it started from, else nothing."""
    from sgpa.experiments.recipes import plans
    from sgpa.inference.saved import read_saved
    from sgpa.models import Transformer
    from sgpa.training.compare import compare

    for plan in plans(run_folder.recipe):
        if plan.method.id != "sgpa" or len(plan.stages) == 1:
            continue
        point = Transformer.from_pretrained(run_folder.training(plan, plan.stages[0], seed) / "model")
        sparse = read_saved(run_folder.cell(plan, seed)).open(run_folder.device).predictor
        models = {"sgpa": sparse, "mle": point.to(run_folder.device)}
        comparison = compare(models, run_folder.task(seed).splits.validation)
        if comparison.nll["mle"] < comparison.nll["sgpa"]:
            scores = str(comparison).partition(";")[0]
            return f"SGPA is worse than its point model ({scores}); --method auto would choose the better one"
    return ""
