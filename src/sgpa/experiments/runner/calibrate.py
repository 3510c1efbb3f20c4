"""Calibration: from trained models to a predictor, its rule of trust and its description on disk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path
from typing import Any

from sgpa.core.errors import CheckpointError, InputError
from sgpa.core.files import load_exactly, read_json, read_tensors, write_json, write_tensors
from sgpa.core.inputs import tensors_of
from sgpa.core.types import Predictor
from sgpa.evaluation.results import Subject
from sgpa.experiments.runner.run_folder import RunFolder
from sgpa.experiments.tasks import Task
from sgpa.inference import readers
from sgpa.inference.judged import fit_trust
from sgpa.inference.novelty import NoveltyOf
from sgpa.inference.saved import COMBINED, FILE, NOVELTY, describe, read_metadata
from sgpa.inference.trust import TrustRule
from sgpa.methods import Calibration, Tensors
from sgpa.models import Transformer, saving
from sgpa.training.compare import refit_scale
from sgpa.training.fingerprint import digest
from sgpa.training.left_out import LeftOut
from sgpa.training.plan import Plan
from sgpa.training.run_state import FINISHED
from sgpa.training.selection import left_out_key


@dataclass(frozen=True)
class CalibratedMethod:
    """A trained and calibrated method with its data: ready to be tested."""

    run_folder: RunFolder
    plan: Plan
    seed: int
    task: Task
    predictor: Predictor
    rule: TrustRule  # which answers to trust
    novelty: NoveltyOf | None  # how unfamiliar inputs are; None for runs of version 0.1
    members: tuple[Predictor, ...]  # what the predictor combines
    combined: Tensors  # what the combination needs

    @property
    def subject(self) -> Subject:
        """The columns that all records of this method share."""
        data = self.run_folder.recipe.task
        return Subject(data.dataset, self.plan.attention, self.plan.method.id, self.seed, data.augmentation)


def calibrate(
    run_folder: RunFolder, plan: Plan, seed: int, models: Mapping[int, Transformer] | None = None
) -> CalibratedMethod:
    """Calibrate a trained method, once, and describe the predictor in the cell's folder.

    Args:
        run_folder: Where the run is.
        plan: The method and its stages.
        seed: The seed of the cell.
        models: What `train` returned; models that are not given are read from disk.
    """
    cell, method = run_folder.cell(plan, seed), plan.method
    metadata = read_metadata(cell) if (cell / FILE).exists() else None
    task = run_folder.task(seed)
    if metadata is not None:
        _check_data(cell, metadata, task, run_folder.recipe.task.dataset)
    members = run_folder.members(plan, seed)
    predictors, first = [], None
    for number, member in zip(plan.members(seed), members, strict=True):
        own = task if number == seed else run_folder.task(number)
        model = None if plan.suffix else (models or {}).get(number)
        model = _read_model(run_folder, plan, member.model, own) if model is None else model
        file = member.calibrated
        assert file is not None
        if not file.exists():
            data = Calibration(own.splits.train, own.splits.validation)
            scale = (
                saving.scale_of(refit_scale(model, data.validation)) if run_folder.recipe.refit_scale else {}
            )
            write_tensors(file, {**method.calibrate(model, data), **scale})
        calibrated = {name: value.to(model.device) for name, value in read_tensors(file)[0].items()}
        saving.set_scale(model, calibrated)
        predictors.append(method.predictor(model, calibrated))
        first = model if first is None else first
    combined = _combined(cell / COMBINED, plan, predictors, task)
    predictor = method.combine(predictors, combined)
    if task.reader is not None and not (cell / readers.FILE).exists():
        task.reader.save(cell)
    if metadata is None:
        assert first is not None
        errors = _left_out(plan, members[0].model.parent) if len(members) == 1 else None
        rule, measured = fit_trust(
            predictor,
            first,
            Calibration(task.splits.train, task.splits.validation),
            max_error=run_folder.recipe.max_error,
            residuals=None if errors is None else errors.of,
        )
        if measured is not None:
            write_tensors(cell / NOVELTY, measured.tensors())
        metadata = {
            "method": method.id,
            "attention": plan.attention,
            "seed": seed,
            "data": {run_folder.recipe.task.dataset: task.fingerprint},
            "test_rows": _test_rows(task),
            "trainings": [Path(relpath(f, cell)).as_posix() for f in run_folder.trainings(plan, seed)],
            **describe(cell, method, members, rule, task.class_names),
        }
        write_json(cell / FILE, metadata)
    rule = TrustRule.from_json(metadata)
    assert first is not None
    novelty = NoveltyOf.read(first, cell / NOVELTY)
    return CalibratedMethod(
        run_folder, plan, seed, task, predictor, rule, novelty, tuple(predictors), combined
    )


def _left_out(plan: Plan, training: Path) -> LeftOut | None:
    """The errors of held-out rows that a training noted; None for classes, and where predictions differ."""
    note = read_json(training / FINISHED, dict[str, Any]) if (training / FINISHED).exists() else {}
    key = left_out_key(plan.suffix)
    own = bool(plan.suffix) or plan.method.predicts_directly
    return LeftOut.from_json(note[key]) if own and key in note else None


def check_unchanged(run_folder: RunFolder, seed: int) -> None:
    """Raise where a cell of this task was trained on other data, which would show as other settings too."""
    dataset = run_folder.recipe.task.dataset
    if not run_folder.has_task():
        return
    fingerprint = run_folder.task(seed).fingerprint
    for file in sorted((run_folder.directory / "cells").glob(f"*/{FILE}")):
        if not _same_data(read_metadata(file.parent), dataset, fingerprint):
            raise InputError(
                f"the data of {dataset} changed since the run in {run_folder.directory}; give --out another "
                "folder, or restore the data to resume the run"
            )


def _same_data(metadata: Mapping[str, Any], dataset: str, fingerprint: str) -> bool:
    """Whether a cell was made from these data, as far as it noted them."""
    return bool(metadata.get("data", {}).get(dataset, fingerprint) == fingerprint)


def _check_data(cell: Path, metadata: Mapping[str, Any], task: Task, dataset: str) -> None:
    """Raise if the data are not those that the cell was made from; older versions noted less of them."""
    same = _same_data(metadata, dataset, task.fingerprint)
    if not same or metadata.get("test_rows", _test_rows(task)) != _test_rows(task):
        raise InputError(
            f"the data of {dataset} have changed since {cell} was trained, so its test rows are others now; "
            "train again into another folder"
        )


def _test_rows(task: Task) -> str:
    """A digest of the test rows in their order, without numbers that machines round differently."""
    test = task.splits.test
    whole = [x for x in tensors_of(test.inputs) if not x.is_floating_point()]
    return digest(*whole, test.targets)


def _combined(file: Path, plan: Plan, predictors: Sequence[Predictor], task: Task) -> Tensors:
    """What the predictors need to predict together, computed once."""
    if file.exists():
        return read_tensors(file)[0]
    if tensors := plan.method.calibrate_ensemble(predictors, task.splits.validation):
        write_tensors(file, tensors)
    return tensors


def _read_model(run_folder: RunFolder, plan: Plan, folder: Path, task: Task) -> Transformer:
    """The model at the end of a plan's stages."""
    last = plan.stages[-1]
    if not (folder / "config.json").exists():
        raise CheckpointError(f"{folder.parent} is not trained to its end; train it first")
    model = last.method.build(last.model(run_folder.model(task)))
    load_exactly(model, saving.load(folder)[1], folder)
    return model.to(run_folder.device).eval()
