"""Evaluation of a cell: `results.json` holds its records and curves, `timings.json` its costs."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sgpa.core import provenance
from sgpa.core.config import to_plain
from sgpa.core.devices import now
from sgpa.core.files import file_digest, write_json
from sgpa.core.progress import OnProgress
from sgpa.core.types import Predictor
from sgpa.data.overlap import shared_rows
from sgpa.experiments.runner.calibrate import CalibratedMethod, calibrate
from sgpa.experiments.runner.jobs import silent
from sgpa.experiments.runner.result_cache import FileCache
from sgpa.experiments.runner.run_folder import RunFolder
from sgpa.experiments.runner.train import shown_name
from sgpa.experiments.tasks import evaluate_task
from sgpa.inference.judged import make_judge
from sgpa.inference.serve import serve, worth_serving
from sgpa.models import Transformer, saving
from sgpa.training.fingerprint import data_digest
from sgpa.training.logs import history, read_log, seconds
from sgpa.training.plan import Plan

TIMED_ROWS = 200
SERVED_ROWS = 400


def evaluate_cell(
    run_folder: RunFolder,
    plan: Plan,
    seed: int,
    on_progress: OnProgress = silent,
    *,
    again: bool = False,
    models: Mapping[int, Transformer] | None = None,
) -> None:
    """Test a trained method, once unless `again`; a test that was stopped is resumed.

    `models` are those that `train` returned; others are read from disk.
    """
    cell = run_folder.cell(plan, seed)
    if (cell / "results.json").exists() and not again:
        return
    name = shown_name(plan, f"test {plan.method.id}", seed)

    def on_test(what: str, done: int, total: int) -> None:
        on_progress(name, done, total, what)

    calibrated = calibrate(run_folder, plan, seed, models)
    how, file = run_folder.recipe.evaluation, cell / "tested.jsonl"
    if again:
        file.unlink(missing_ok=True)
    weights = [member.model / saving.WEIGHTS for member in run_folder.members(plan, seed)]
    digests = [file_digest(path) for path in weights]
    fingerprint = calibrated.task.fingerprint
    cache = FileCache(file, {"models": digests, "evaluation": to_plain(how), "data": fingerprint})
    costs = timings(calibrated)
    judge = make_judge(calibrated.rule, calibrated.novelty)
    adjust = calibrated.rule.calibrated
    results = evaluate_task(
        fast(calibrated), calibrated.subject, calibrated.task, how, on_test, cache, judge, adjust
    )
    rule = calibrated.rule
    limits = {"max_error": rule.max_error, "bound": rule.bound, "rows": rule.rows, "doubt": rule.doubt}
    results.add_curve(calibrated.subject, "trust", "", limits)
    if plan.method.trains is plan.method:  # the log of a post-hoc method is that of its base
        log = run_folder.training(plan, plan.stages[-1], seed) / "log.jsonl"
        earlier: dict[str, Any] = {"earlier_epochs": sum(stage.optim.epochs for stage in plan.stages[:-1])}
        if len(plan.stages) > 1:
            before = run_folder.training(plan, plan.stages[-2], seed) / "log.jsonl"
            earlier["earlier_validation"] = history(before)["validation"]
        curve = history(log, f"validation{plan.suffix}") | earlier
        results.add_curve(calibrated.subject, "training", "", curve)
    results.add_curve(calibrated.subject, "data", "", _about_data(calibrated, fingerprint))
    provenance.record(cell)
    write_json(cell / "timings.json", costs)
    write_json(
        cell / "results.json",
        {
            "records": results.records,
            "curves": results.curves,
            "data": {calibrated.subject.dataset: fingerprint},
            "note": calibrated.task.note,
        },
    )
    file.unlink()


def _about_data(calibrated: CalibratedMethod, fingerprint: str) -> dict[str, Any]:
    """What a method was trained and tested on: the report compares it between methods."""
    task, splits = calibrated.task, calibrated.task.splits
    rows: dict[str, Any] = {
        "train": len(splits.train),
        "validation": len(splits.validation),
        "test": len(splits.test),
    }
    digests = {"train_digest": data_digest(splits.train), "test_digest": data_digest(splits.test)}
    shared = shared_rows(splits.train, splits.test)
    if task.class_names and task.display is not None:
        counts = splits.train.targets.bincount(minlength=len(task.class_names)).tolist()
        rows["class_rows"] = dict(zip(task.class_names, counts, strict=True))
    return {"fingerprint": fingerprint, **rows, **digests, "test_rows_in_train": shared}


def fast(calibrated: CalibratedMethod) -> Predictor:
    """The predictor, compiled if it samples 75 corrupted test sets on a GPU."""
    if calibrated.task.corrupted is None or not calibrated.run_folder.device.startswith("cuda"):
        return calibrated.predictor
    served = [serve(member, SERVED_ROWS) for member in calibrated.members if worth_serving(member)]
    if len(served) < len(calibrated.members):
        return calibrated.predictor
    return calibrated.plan.method.combine(served, calibrated.combined)


def timings(calibrated: CalibratedMethod) -> dict[str, Any]:
    """Training time from the logs, and the time of a prediction."""
    run_folder, plan = calibrated.run_folder, calibrated.plan
    logs = [folder / "log.jsonl" for folder in run_folder.trainings(plan, calibrated.seed)]
    lines = list(read_log(logs[-1]))
    steps = -(-len(calibrated.task.splits.train) // plan.stages[-1].optim.batch_size)
    rows = calibrated.task.splits.test.inputs[:TIMED_ROWS]
    calibrated.predictor.predict(rows)  # the first call is slower
    started = now(run_folder.device)
    calibrated.predictor.predict(rows)
    taken = now(run_folder.device) - started
    return {
        **asdict(calibrated.subject),
        "train_seconds": sum(seconds(log) for log in logs),
        "seconds_per_step": sum(line["seconds"] for line in lines) / max(1, steps * len(lines)),
        "predict_seconds_per_row": taken / len(rows),
        "peak_memory_bytes": max((line.get("peak_memory_bytes") or 0 for line in lines), default=0) or None,
    }
