"""One method with one seed: its trainings, its calibration, its examination."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from sgpa.core import provenance
from sgpa.core.config import plain
from sgpa.core.errors import CheckpointError
from sgpa.core.files import file_digest, load_exactly, read_json, read_tensors, write_json, write_tensors
from sgpa.core.types import Predictor
from sgpa.evaluation.evaluate import Subject
from sgpa.experiments.recipes import plan
from sgpa.experiments.runner.partial_results import Parts
from sgpa.experiments.runner.run_folder import RunFolder
from sgpa.experiments.tasks import Task, examine
from sgpa.inference import readers
from sgpa.inference.answers import Trained
from sgpa.inference.serve import serve, worth_serving
from sgpa.inference.trust import saved_limit, threshold
from sgpa.methods import NOTHING, Calibration, Tensors
from sgpa.models import Transformer, saving
from sgpa.training.logs import history, in_words, read_log, seconds
from sgpa.training.plan import Plan, Stage
from sgpa.training.trainer import Trainer

POOLED = "calibrated-together.safetensors"  # of what an ensemble found out about its average
Announce = Callable[[str, int, int, str], None]  # work, done, total, what to show


def silent(*_: object) -> None:
    """Tell nobody."""


def train(
    place: RunFolder, plan: Plan, step: int, seeds: Sequence[int], announce: Announce = silent
) -> list[Transformer]:
    """The `step`-th training of a plan for some seeds, one by one; finished ones are read from disk."""
    models = [place.folder(plan, plan.stages[step], seed) / "model" / "config.json" for seed in seeds]
    before = [seed for seed, model in zip(seeds, models, strict=True) if model.exists()]
    found = [_trainer(place, plan, step, seed, announce).fit() for seed in seeds]
    for seed in before:
        announce(label_of(plan, plan.stages[step], seed), 1, 1, "trained before")
    return found


def label_of(plan: Plan, training: Stage, seed: int) -> str:
    """What a training is called where its progress is shown."""
    return f"{plan.attention} {training.name}, seed {seed}"


def _trainer(place: RunFolder, plan: Plan, step: int, seed: int, announce: Announce) -> Trainer:
    training = plan.stages[step]
    label, epochs = label_of(plan, training, seed), training.optim.epochs
    announce(label, 0, 100 * epochs, "reading the data")
    task = place.task(seed)
    steps = -(-len(task.splits.train) // training.optim.batch_size)
    init_from = None
    if step:
        before = place.folder(plan, plan.stages[step - 1], seed) / "model"
        init_from = saving.load(before)[1]

    def on_progress(line: dict[str, Any]) -> None:
        if "step" in line:
            done = line["epoch"] - 1 + line["step"] / line["steps"]
        else:
            done, line = line["epoch"], line | {"step_seconds": line["seconds"] / steps}
        announce(label, round(100 * done), 100 * epochs, in_words(line, epochs))

    announce(label, 0, 100 * epochs, "starting")
    return Trainer(
        method=training.method,
        config=training.model(place.model(task)),
        optim=training.optim,
        train=task.splits.train,
        validation=task.splits.validation,
        seed=seed,
        directory=place.folder(plan, training, seed),
        init_from=init_from,
        extra_selectors=training.extra_selectors,
        device=place.device,
        on_progress=on_progress,
    )


@dataclass(frozen=True)
class CalibratedMethod:
    """A trained and calibrated method: what it takes to predict and to be tested."""

    place: RunFolder
    plan: Plan
    seed: int
    task: Task
    predictor: Predictor
    threshold: float  # of the score, above which an answer should not be trusted
    members: tuple[Predictor, ...]  # what the predictor combines,
    pooled: Tensors  # and what it needs for that

    @property
    def subject(self) -> Subject:
        """Whose numbers these are."""
        data = self.place.recipe.task
        return Subject(data.dataset, self.plan.attention, self.plan.method.id, self.seed, data.augmentation)


def prepare(place: RunFolder, plan: Plan, seed: int) -> CalibratedMethod:
    """Calibrate a trained method, once; what was found is kept in the cell's folder."""
    folder, method = place.cell(plan, seed), plan.method
    predictors, task = [], place.task(seed)
    for member in plan.members(seed):
        own = task if member == seed else place.task(member)
        model = trained(place, plan, member, own)
        file = folder / f"calibrated-{member}.safetensors"
        if not file.exists():
            data = Calibration(own.splits.train, own.splits.validation)
            write_tensors(file, method.calibrate(model, data))
        calibrated = {name: value.to(model.device) for name, value in read_tensors(file)[0].items()}
        predictors.append(method.predictor(model, calibrated))
    pooled = _pooled(folder / POOLED, plan, predictors, task)
    predictor = method.combine(predictors, pooled)
    if task.reader is not None and not (folder / readers.FILE).exists():
        task.reader.save(folder)
    note = folder / "run.json"
    if not note.exists():
        found = threshold(predictor, task.splits.validation)
        about = {"method": method.id, "attention": plan.attention, "seed": seed, "threshold": found}
        write_json(note, about | {"classes": list(task.class_names)})
    limit = saved_limit(read_json(note)["threshold"])
    return CalibratedMethod(place, plan, seed, task, predictor, limit, tuple(predictors), pooled)


def _pooled(file: Path, plan: Plan, predictors: Sequence[Predictor], task: Task) -> Tensors:
    """What the predictors need to predict together, found once."""
    if not file.exists():
        if found := plan.method.calibrate_ensemble(predictors, task.splits.validation):
            write_tensors(file, found)
        return found
    return read_tensors(file)[0]


def trained(place: RunFolder, plan: Plan, seed: int, task: Task) -> Transformer:
    """The model at the end of a plan's trainings."""
    last = plan.stages[-1]
    folder = place.model_folder(plan, seed)
    if not (folder / "config.json").exists():
        raise CheckpointError(f"{folder.parent} is not trained to its end; train it first")
    model = last.method.build(last.model(place.model(task)))
    load_exactly(model, saving.load(folder)[1], folder)
    return model.to(place.device).eval()


def cell_of(directory: Path, **options: Any) -> tuple[RunFolder, Plan, int]:
    """The place, the plan and the seed that a cell's folder is about."""
    if not (directory / "run.json").exists():
        raise CheckpointError(f"{directory} holds no run.json: it is not the folder of a trained method")
    about = read_json(directory / "run.json")
    place = RunFolder.at(directory.resolve().parents[1], **options)
    return place, plan(place.recipe, about["method"], about["attention"]), about["seed"]


def open_cell(directory: Path, *, data_dir: Path | None = None, device: str = "cpu") -> CalibratedMethod:
    """A finished cell with its data: to be tested."""
    return prepare(*cell_of(directory, data_dir=data_dir, device=device))


def open_trained(directory: Path, *, device: str = "cpu") -> Trained:
    """A finished cell without its data: to predict for new inputs."""
    place, plan, seed = cell_of(directory, device=device)
    method, predictors = plan.method, []
    for member in plan.members(seed):
        model = Transformer.from_pretrained(place.model_folder(plan, member)).to(device)
        saved = read_tensors(directory / f"calibrated-{member}.safetensors")[0]
        predictors.append(method.predictor(model, {name: value.to(device) for name, value in saved.items()}))
    pooled = read_tensors(directory / POOLED)[0] if (directory / POOLED).exists() else NOTHING
    predictor = method.combine(predictors, pooled)
    about = read_json(directory / "run.json")
    return Trained(
        predictor, readers.load(directory), saved_limit(about["threshold"]), tuple(about["classes"])
    )


def assess(
    place: RunFolder, plan: Plan, seed: int, announce: Announce = silent, *, again: bool = False
) -> None:
    """Examine a trained method once: `results.json` holds what it is worth, `timings.json` what it costs."""
    folder = place.cell(plan, seed)
    if (folder / "results.json").exists() and not again:
        return
    label = f"{plan.attention} {plan.method.id}, seed {seed}"

    def tell(what: str, done: int, total: int) -> None:
        announce(f"test {label}", done, total, what)

    ready = prepare(place, plan, seed)
    how, file = place.recipe.evaluation, folder / "tested.jsonl"
    if again:
        file.unlink(missing_ok=True)
    models = [place.model_folder(plan, member) / saving.WEIGHTS for member in plan.members(seed)]
    marks = [file_digest(model) for model in models]
    keep = Parts(file, {"models": marks, "evaluation": plain(how), "data": ready.task.fingerprint})
    costs = timings(ready)
    results = examine(_fast(ready), ready.subject, ready.task, how, tell, keep)
    if plan.method.trains is plan.method:  # others would show the training of the method they wrap again
        log = place.folder(plan, plan.stages[-1], seed) / "log.jsonl"
        results.add_curve(ready.subject, "training", "", history(log, f"validation{plan.suffix}"))
    provenance.record(folder)
    write_json(folder / "timings.json", costs)
    write_json(
        folder / "results.json",
        {
            "records": results.records,
            "curves": results.curves,
            "data": {ready.subject.dataset: ready.task.fingerprint},
            "note": ready.task.note,
        },
    )
    file.unlink()


def _fast(ready: CalibratedMethod) -> Predictor:
    """The predictor, compiled for a GPU where 75 corrupted sets are to be sampled."""
    if ready.task.corrupted is None or not ready.place.device.startswith("cuda"):
        return ready.predictor
    served = [serve(member, SERVED_ROWS) for member in ready.members if worth_serving(member)]
    if len(served) < len(ready.members):
        return ready.predictor
    return ready.plan.method.combine(served, ready.pooled)


def timings(ready: CalibratedMethod) -> dict[str, Any]:
    """Training time from the logs, and the time of a prediction."""
    place, plan = ready.place, ready.plan
    logs = [folder / "log.jsonl" for folder in place.folders(plan, ready.seed)]
    lines = list(read_log(logs[len(logs) - 1]))
    steps = -(-len(ready.task.splits.train) // plan.stages[-1].optim.batch_size)
    rows = ready.task.splits.test.inputs[:TIMED_ROWS]
    ready.predictor.predict(rows)  # the first call pays for what later ones find ready
    started = time.monotonic()
    ready.predictor.predict(rows)
    if place.device.startswith("cuda"):
        torch.cuda.synchronize()
    return {
        **asdict(ready.subject),
        "train_seconds": sum(seconds(log) for log in logs),
        "seconds_per_step": sum(line["seconds"] for line in lines) / max(1, steps * len(lines)),
        "predict_seconds_per_row": (time.monotonic() - started) / len(rows),
        "peak_memory_bytes": max((line.get("peak_memory_bytes") or 0 for line in lines), default=0) or None,
    }


TIMED_ROWS = 200
SERVED_ROWS = 400
