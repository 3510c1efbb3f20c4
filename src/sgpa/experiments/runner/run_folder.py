"""A folder for the runs of one recipe: `recipe.json`, `trainings/`, `cells/`, `results.json`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from sgpa.core.config import differences, from_plain, override, to_plain
from sgpa.core.errors import CheckpointError, ConfigError
from sgpa.core.files import check_file_name, read_json, write_json
from sgpa.core.noise import check_seed
from sgpa.experiments.recipes import RECIPES, Recipe, find
from sgpa.experiments.recipes.schema import KINDS
from sgpa.experiments.tasks import Task, TaskConfig
from sgpa.inference.saved import Member
from sgpa.models import ModelConfig
from sgpa.training.plan import Plan, Stage

FILE = "recipe.json"
COUNTS = ("seeds", "methods", "ensembles")  # decide how many cells there are; may change between calls
FREE = (*COUNTS, "task.path")  # settings that do not change what a cell is


class SavedRecipe(TypedDict):
    """`recipe.json`."""

    recipe: str
    set: NotRequired[list[str] | None]
    values: dict[str, Any]


@dataclass(frozen=True)
class RunFolder:
    """A folder for the runs of one recipe. `settings` are the overrides that were applied to it."""

    recipe: Recipe
    directory: Path
    settings: tuple[str, ...] = ()
    data_dir: Path | None = None
    device: str = "cpu"

    @staticmethod
    def of(
        recipe: Recipe | str, directory: Path, settings: Sequence[str] = (), **options: Any
    ) -> "RunFolder":
        """The folder for a recipe, or the recipe of that name, with overrides."""
        base = find(recipe) if isinstance(recipe, str) else recipe
        return RunFolder(override(base, settings), directory, tuple(settings), **options)

    @staticmethod
    def at(directory: Path, **options: Any) -> "RunFolder":
        """An existing folder, with the recipe it was made with."""
        if not (directory / FILE).exists():
            raise CheckpointError(f"{directory} holds no recipe.json: it is not a folder of runs")
        recipe, settings = _read(directory / FILE)
        return RunFolder(recipe, directory, settings, **options)

    def claim(self) -> None:
        """Write the recipe into the folder, or check that the folder was made with the same one."""
        self.check()
        if not (self.directory / FILE).exists():
            self._write(self.recipe)

    def prefer(self, method: str) -> None:
        """Write the recipe with this method first: it predicts where a command names only the folder."""
        methods = tuple(dict.fromkeys((method, *self.recipe.methods)))
        self._write(replace(self.recipe, methods=methods))

    def _write(self, recipe: Recipe) -> None:
        saved = {"recipe": recipe.name, "set": list(self.settings), "values": to_plain(recipe)}
        write_json(self.directory / FILE, saved)

    def check(self) -> None:
        """Raise if the folder holds a run that was made with another recipe, or without one."""
        check_file_name(self.directory)
        if self.directory.exists() and not self.directory.is_dir():
            raise CheckpointError(f"{self.directory} is a file; name a folder for the run")
        file = self.directory / FILE
        if not file.exists():
            if (self.directory / "run.json").exists():
                raise CheckpointError(
                    f"{self.directory} holds a run without recipe.json; choose another folder"
                )
            return
        saved, _ = _read(file)
        if saved.name != self.recipe.name:
            raise CheckpointError(
                f"{self.directory} holds runs of recipe {saved.name}, not of {self.recipe.name}; "
                "choose another folder"
            )
        if differing := [d for d in differences(to_plain(saved), to_plain(self.recipe)) if d[0] not in FREE]:
            shown = "; ".join(f"{path} is {old} there and {new} now" for path, old, new in differing[:3])
            raise CheckpointError(f"{self.directory}: {shown}; choose another folder, or the same settings")

    def has_task(self) -> bool:
        """Whether the folder holds runs on the recipe's task, wherever its data lie."""
        if not (self.directory / FILE).exists():
            return False
        saved, _ = _read(self.directory / FILE)
        return not [d for d in differences(to_plain(saved), to_plain(self.recipe)) if _other_task(d[0])]

    def training(self, plan: Plan, stage: Stage, seed: int) -> Path:
        """The folder of one stage's training."""
        return self.directory / "trainings" / f"{plan.attention}-{stage.name}-{seed}"

    def trainings(self, plan: Plan, seed: int) -> list[Path]:
        """The folders of all trainings that a plan needs: stage after stage, each for all members."""
        return [self.training(plan, stage, member) for stage in plan.stages for member in plan.members(seed)]

    def model_folder(self, plan: Plan, seed: int) -> Path:
        """The folder of the model that a plan predicts with."""
        return self.training(plan, plan.stages[-1], seed) / f"model{plan.suffix}"

    def cell(self, plan: Plan, seed: int) -> Path:
        """The folder of a method with one seed: calibration, predictor and results."""
        return self.directory / "cells" / f"{plan.name}-{seed}"

    def members(self, plan: Plan, seed: int) -> list[Member]:
        """The models of a cell and the files of their calibration."""
        cell = self.cell(plan, seed)
        return [
            Member(self.model_folder(plan, member), cell / f"calibrated-{member}.safetensors")
            for member in plan.members(seed)
        ]

    def task(self, seed: int) -> Task:
        """The recipe's data for a seed."""
        check_seed(seed)
        return load_task(self.recipe.task, seed, self.data_dir)

    def model(self, task: Task) -> ModelConfig:
        """The recipe's model with the sizes that the data decide."""
        model = self.recipe.model
        embedding = task.embedding or replace(model.embedding, **dict(task.sizes))
        return replace(model, embedding=embedding, outputs=task.outputs or model.outputs)


def _other_task(path: str) -> bool:
    return path not in FREE and (path == "name" or path.startswith("task"))


def _read(file: Path) -> tuple[Recipe, tuple[str, ...]]:
    """The recipe of a recipe.json, and the overrides that made it."""
    try:
        saved = read_json(file, SavedRecipe)
    except CheckpointError as error:
        raise CheckpointError(f"{file} holds no recipe ({error})") from None
    try:
        recipe = from_plain(saved["values"], KINDS, file.name)
    except ConfigError as error:
        raise CheckpointError(f"{file.parent}: {error}") from None
    if not isinstance(recipe, Recipe):
        raise CheckpointError(f"{file} holds no recipe; it was damaged or made by something else")
    settings = tuple(saved.get("set") or ())
    if "methods" not in saved["values"] and saved["recipe"] in RECIPES:  # version 0.1 left COUNTS out
        counts = [setting for setting in settings if setting.partition("=")[0].strip() in COUNTS]
        base = override(RECIPES[saved["recipe"]], counts)
        recipe = replace(recipe, **{name: getattr(base, name) for name in COUNTS})
    return recipe, settings


@lru_cache(maxsize=2)
def load_task(task: TaskConfig, seed: int, data_dir: Path | None) -> Task:
    """The data of a task; the last two that were read are kept in memory."""
    return task.load(seed, data_dir)
