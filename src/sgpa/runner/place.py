"""Where the runs of a recipe live, and under which settings: one folder, one recipe."""

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from sgpa.errors import CheckpointError
from sgpa.files import read_json, write_json
from sgpa.models import ModelConfig
from sgpa.recipes import Plan, Recipe, Training, changed, find
from sgpa.stepping import one_length
from sgpa.tasks import Task, TaskConfig

FREE = ("seeds", "methods", "ensembles")  # may change between calls: they only say how many cells there are


@dataclass(frozen=True)
class Place:
    """A folder for the runs of one recipe. `settings` are the overrides that made it what it is."""

    recipe: Recipe
    directory: Path
    settings: tuple[str, ...] = ()
    data_dir: Path | None = None
    device: str = "cpu"

    @staticmethod
    def of(name: str, directory: Path, settings: Sequence[str] = (), **options: Any) -> "Place":
        """The place of a recipe with overrides."""
        return Place(changed(find(name), settings), directory, tuple(settings), **options)

    @staticmethod
    def at(directory: Path, **options: Any) -> "Place":
        """The place that a folder was claimed for."""
        file = directory / "recipe.json"
        if not file.exists():
            raise CheckpointError(f"{directory} holds no recipe.json: it is not a folder of runs")
        saved = read_json(file)
        now = changed(find(saved["recipe"]), saved["set"])
        values = {name: v for name, v in completed(saved["values"], now).items() if name not in FREE}
        recipe = restored(values, now)
        place = Place(recipe, directory, tuple(saved["set"]), **options)
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
        before = completed(saved["values"], self.recipe)
        if differing := [d for d in differences(before, values) if d[0] not in FREE]:
            shown = "; ".join(f"{path} is {old} there and {new} now" for path, old, new in differing[:3])
            raise CheckpointError(f"{self.directory}: {shown}; choose another folder, or the same settings")

    @property
    def stacks(self) -> bool:
        """Whether seeds train together on stacked parameters: images on a GPU."""
        return one_length(self.recipe.model) and self.device.startswith("cuda")

    def folder(self, plan: Plan, training: Training, seed: int) -> Path:
        """Where a training is."""
        return self.directory / "trainings" / f"{plan.attention}-{training.name}-{seed}"

    def folders(self, plan: Plan, seed: int) -> list[Path]:
        """Where all trainings are that a plan needs for a seed: one after another, each for all members."""
        return [self.folder(plan, t, member) for t in plan.trainings for member in plan.members(seed)]

    def model_folder(self, plan: Plan, seed: int) -> Path:
        """Where the model is that a plan predicts with."""
        return self.folder(plan, plan.trainings[-1], seed) / f"model{plan.suffix}"

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


@lru_cache(maxsize=2)
def _load(task: TaskConfig, seed: int, data_dir: Path | None) -> Task:
    """Read once for all steps of a run: the features of a language model take minutes."""
    return task.load(seed, data_dir)


def plain(value: Any) -> Any:
    """A config as plain data; every object says what kind it is."""
    if is_dataclass(value):
        parts = {f.name: plain(getattr(value, f.name)) for f in fields(value)}
        return {"kind": type(value).__name__, **parts}
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


def completed(saved: Any, config: Any) -> Any:
    """A saved config with the fields that came later at their defaults: what is done without a choice."""
    if not isinstance(saved, dict) or not is_dataclass(config):
        return saved
    known = {name: completed(value, getattr(config, name, None)) for name, value in saved.items()}
    later = [f for f in fields(config) if f.name not in saved and f.default is not MISSING]
    return known | {f.name: plain(f.default) for f in later}


def restored(saved: Any, config: Any) -> Any:
    """The config that was saved, whatever the recipe of its name has come to be since."""
    if not isinstance(saved, dict):
        return tuple(saved) if isinstance(saved, list) else saved
    if not is_dataclass(config) or isinstance(config, type) or saved.get("kind") != type(config).__name__:
        raise CheckpointError(f"recipe.json speaks of a {saved.get('kind')}, which has no place there now")
    parts = {f.name: getattr(config, f.name) for f in fields(config)}
    return type(config)(**{name: restored(saved.get(name, part), part) for name, part in parts.items()})


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every field in which two plain configs differ: its path and both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from differences(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif old != new:
        yield path, old, new
