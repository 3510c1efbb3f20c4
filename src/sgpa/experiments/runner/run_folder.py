"""Where the runs of a recipe live, and under which settings: one folder, one recipe."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from sgpa.core.config import completed, differences, modern_path, modernised, plain, restored
from sgpa.core.errors import CheckpointError
from sgpa.core.files import read_json, write_json
from sgpa.experiments.recipes import Recipe, changed, find
from sgpa.experiments.tasks import Task, TaskConfig
from sgpa.models import ModelConfig
from sgpa.training.plan import Plan, Stage

FREE = ("seeds", "methods", "ensembles")  # may change between calls: they only say how many cells there are


@dataclass(frozen=True)
class RunFolder:
    """A folder for the runs of one recipe. `settings` are the overrides that made it what it is."""

    recipe: Recipe
    directory: Path
    settings: tuple[str, ...] = ()
    data_dir: Path | None = None
    device: str = "cpu"

    @staticmethod
    def of(name: str, directory: Path, settings: Sequence[str] = (), **options: Any) -> "RunFolder":
        """The place of a recipe with overrides."""
        return RunFolder(changed(find(name), settings), directory, tuple(settings), **options)

    @staticmethod
    def at(directory: Path, **options: Any) -> "RunFolder":
        """The place that a folder was claimed for."""
        file = directory / "recipe.json"
        if not file.exists():
            raise CheckpointError(f"{directory} holds no recipe.json: it is not a folder of runs")
        saved = read_json(file)
        settings = _modern_settings(find(saved["recipe"]), saved["set"])
        now = changed(find(saved["recipe"]), settings)
        before = modernised(saved["values"])
        values = {name: v for name, v in completed(before, now).items() if name not in FREE}
        recipe = restored(values, now)
        place = RunFolder(recipe, directory, settings, **options)
        place.claim()
        return place

    def claim(self) -> None:
        """Write the recipe down, or make sure that the folder belongs to this very one."""
        file = self.directory / "recipe.json"
        values = {name: value for name, value in plain(self.recipe).items() if name not in FREE}
        if not file.exists():
            write_json(file, {"recipe": self.recipe.name, "set": list(self.settings), "values": values})
            return
        saved = read_json(file)
        if saved["recipe"] != self.recipe.name:
            raise CheckpointError(
                f"{self.directory} holds runs of recipe {saved['recipe']}, not of {self.recipe.name}; "
                "choose another folder"
            )
        before = completed(modernised(saved["values"]), self.recipe)
        if differing := [d for d in differences(before, values) if d[0] not in FREE]:
            shown = "; ".join(f"{path} is {old} there and {new} now" for path, old, new in differing[:3])
            raise CheckpointError(f"{self.directory}: {shown}; choose another folder, or the same settings")

    def folder(self, plan: Plan, training: Stage, seed: int) -> Path:
        """Where a training is."""
        return self.directory / "trainings" / f"{plan.attention}-{training.name}-{seed}"

    def folders(self, plan: Plan, seed: int) -> list[Path]:
        """Where all trainings are that a plan needs for a seed: one after another, each for all members."""
        return [self.folder(plan, t, member) for t in plan.stages for member in plan.members(seed)]

    def model_folder(self, plan: Plan, seed: int) -> Path:
        """Where the model is that a plan predicts with."""
        return self.folder(plan, plan.stages[-1], seed) / f"model{plan.suffix}"

    def cell(self, plan: Plan, seed: int) -> Path:
        """Where the results of a method and a seed are."""
        return self.directory / "cells" / f"{plan.name}-{seed}"

    def task(self, seed: int) -> Task:
        """The recipe's data for a seed."""
        return _load(self.recipe.task, seed, self.data_dir)

    def model(self, task: Task) -> ModelConfig:
        """The recipe's model with the sizes the data decides."""
        sizes: dict[str, Any] = dict(task.sizes)
        embedding = task.embedding or replace(self.recipe.model.embedding, **sizes)
        return replace(self.recipe.model, embedding=embedding)


def _modern_settings(recipe: Recipe, settings: Sequence[str]) -> tuple[str, ...]:
    pairs = (setting.partition("=") for setting in settings)
    return tuple(f"{modern_path(path.strip(), recipe)}={value}" for path, _, value in pairs)


@lru_cache(maxsize=2)
def _load(task: TaskConfig, seed: int, data_dir: Path | None) -> Task:
    """Read once for all steps of a run: the features of a language model take minutes."""
    return task.load(seed, data_dir)
