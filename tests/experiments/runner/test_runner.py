"""Jobs, grids of methods and seeds, and what happens when a job or a process fails."""

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from sgpa.core.errors import CheckpointError, ConfigError, NumericalError
from sgpa.core.files import read_json, read_tensors, write_json, write_tensors
from sgpa.experiments.recipes import RECIPES, plan, plans
from sgpa.experiments.recipes.digits import DIGITS
from sgpa.experiments.runner import (
    Job,
    RunFolder,
    benchmark,
    calibrate,
    evaluate_cell,
    run_jobs,
    train,
)
from sgpa.experiments.runner import evaluate as evaluation
from sgpa.experiments.runner.benchmark import grid, jobs_of
from sgpa.experiments.runner.evaluate import fast
from sgpa.experiments.runner.executors import processes
from sgpa.experiments.runner.executors.in_process import InProcess
from sgpa.experiments.runner.executors.processes import Processes
from sgpa.inference.serve import Served
from sgpa.models import KernelConfig
from sgpa.training.trainer import Trainer
from support.open_runs import export, open_trained
from support.paths import ROOT

TINY = [
    *("optim.epochs=1", "stage1.epochs=2", "stage2.epochs=1", "task.train=50", "model.depth=1"),
    *("model.width=8", "model.heads=2", "sgpa.attention.num_global=2", "ensemble=2", "ensembles=1"),
    *("evaluation.rows=20", "evaluation.ood_rows=20"),
]
PATIENCE = 120.0  # seconds until a test gives up waiting for another process
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


def silent(*_):
    pass


def digits_run(directory, *settings):
    return RunFolder.of("digits", directory, [*TINY, *settings])


def wait_until(condition):
    """Wait for another process."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "gave up waiting"
        time.sleep(0.05)


# jobs ---------------------------------------------------------------------------------------------------


def job(name, order, *needs, error=None):
    def work(on_progress):
        order.append(name)
        if error is not None:
            raise error

    return Job(name, work, needs)


def test_jobs_run_after_those_they_need(tmp_path):
    order = []
    jobs = [job("c", order, "a", "b"), job("b", order, "a"), job("a", order), job("d", order)]
    assert run_jobs(jobs, InProcess(silent), tmp_path) == []
    assert order.index("a") < order.index("b") < order.index("c")
    assert sorted(order) == ["a", "b", "c", "d"]


def test_a_failure_is_logged_and_kept_and_other_jobs_run(tmp_path, caplog):
    order = []
    bad = NumericalError("layer 1: K_gg is not\npositive definite")
    jobs = [
        job("train", order, error=bad),
        job("test", order, "train"),
        job("report", order, "test"),
        job("other", order, error=KeyError("x")),
        job("last", order),
    ]
    failures = {f.job: f.reason for f in run_jobs(jobs, InProcess(silent), tmp_path / "failed")}
    assert order == ["train", "other", "last"]
    assert failures == {
        "train": "layer 1: K_gg is not positive definite",
        "other": "KeyError: 'x'",
        "test": "not run, because train failed",
        "report": "not run, because test failed",
    }
    assert caplog.messages == [
        "train failed: layer 1: K_gg is not positive definite",
        "other failed: KeyError: 'x'",
    ]
    assert sorted(file.name for file in (tmp_path / "failed").iterdir()) == ["other.txt", "train.txt"]
    assert "Traceback" in (tmp_path / "failed" / "train.txt").read_text()


def test_failed_jobs_run_again_only_with_retry(tmp_path, caplog):
    order = []
    run_jobs([job("a", order, error=KeyError("x"))], InProcess(silent), tmp_path)
    run_jobs([job("of another call", order, error=KeyError("y"))], InProcess(silent), tmp_path)
    jobs = [job("a", order), job("b", order, "a"), job("c", order)]
    order.clear()
    caplog.clear()
    failures = run_jobs(jobs, InProcess(silent), tmp_path)
    assert order == ["c"]
    assert caplog.messages == ["a failed before and is not run again: KeyError: 'x'"]
    assert {f.job: f.reason for f in failures} == {"a": "KeyError: 'x'", "b": "not run, because a failed"}
    assert run_jobs(jobs, InProcess(silent), tmp_path, retry=True) == []
    assert order == ["c", "a", "b", "c"]
    assert run_jobs(jobs, InProcess(silent), tmp_path) == []  # a success removes the failure


# processes ----------------------------------------------------------------------------------------------


def note(folder: Path, name: str, on_progress):
    on_progress(name, 1, 1, "done")
    (folder / f"{name}-{uuid.uuid4().hex}").touch()


def die(folder: Path, name: str, times: int, on_progress):
    """End like a process that the system has killed, the first few times."""
    note(folder, name, on_progress)
    if len(list(folder.glob(f"{name}-*"))) <= times:
        os.kill(os.getpid(), signal.SIGKILL)


def refuse(on_progress):
    raise CheckpointError("this folder holds something else")


def sleep(folder: Path, on_progress):
    (folder / "started").touch()
    time.sleep(PATIENCE)
    (folder / "finished").touch()


@pytest.mark.slow
def test_jobs_of_a_process_that_dies_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "RETRIES", 1)
    marks = tmp_path / "marks"
    marks.mkdir()
    jobs = [
        Job("dies once", partial(die, marks, "once", 1)),
        Job("refuses", refuse),
        Job("always dies", partial(die, marks, "always", 99), ("dies once",)),
    ]
    with Processes(1, silent) as executor:
        failures = {f.job: f.reason for f in run_jobs(jobs, executor, tmp_path / "failed")}
    assert set(failures) == {"refuses", "always dies"}
    assert failures["refuses"] == "this folder holds something else"
    assert failures["always dies"].startswith("its process, or one beside it, died 2 times")
    assert len(list(marks.glob("once-*"))) == 2
    assert len(list(marks.glob("always-*"))) == 2


@pytest.mark.slow
def test_progress_of_processes_arrives_and_an_interrupt_does_not_wait_for_jobs(tmp_path):
    heard = set()

    def interrupted():
        with Processes(1, lambda work, *_: heard.add(work)) as executor:
            executor.submit(Job("notes", partial(note, tmp_path, "noted"))).result()
            wait_until(lambda: executor.listen() or "noted" in heard)
            executor.submit(Job("sleeps", partial(sleep, tmp_path)))
            wait_until((tmp_path / "started").exists)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not (tmp_path / "finished").exists()
    assert multiprocessing.active_children() == []


def wait_for_a_minute():
    time.sleep(60)


@pytest.mark.slow
def test_an_interrupt_leaves_processes_of_the_caller_alone():
    mine = multiprocessing.get_context("spawn").Process(target=wait_for_a_minute, daemon=True)
    mine.start()
    try:
        with pytest.raises(KeyboardInterrupt), Processes(1, silent):
            raise KeyboardInterrupt
        assert mine.is_alive()
    finally:
        mine.kill()
        mine.join()


def processes_with(token):
    """The processes that have a word in their environment."""
    process_ids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if token.encode() in (folder / "environ").read_bytes():
                process_ids.append(int(folder.name))
        except OSError:
            continue
    return process_ids


@linux
@pytest.mark.slow
def test_processes_end_when_their_parent_is_killed(tmp_path):
    code = """
import sys
from functools import partial
from pathlib import Path
from sgpa.experiments.runner.executors.processes import Processes
from sgpa.experiments.runner.jobs import Job, run_jobs
from waiting import wait
if __name__ == "__main__":
    with Processes(1, print) as executor:
        run_jobs([Job("a", partial(wait, Path(sys.argv[1]) / "a"))], executor, Path(sys.argv[1]))
"""
    (tmp_path / "main.py").write_text(code)
    (tmp_path / "waiting.py").write_text(
        "import time\ndef wait(file, _):\n    file.touch()\n    time.sleep(300)\n"
    )
    token = uuid.uuid4().hex
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "main.py"), str(tmp_path)], env=os.environ | {"TOKEN_OF_TEST": token}
    )
    wait_until((tmp_path / "a").exists)
    assert len(processes_with(token)) >= 2
    parent.kill()
    parent.wait()
    wait_until(lambda: not processes_with(token))


# benchmarks ---------------------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch):
    """What was trained and what was tested, by name."""
    trained, tested = [], []
    fit, evaluate_task = Trainer.fit, evaluation.evaluate_task

    def counted_fit(trainer):
        if not (trainer.directory / "finished.json").exists():
            trained.append(trainer.directory.name)
        return fit(trainer)

    def counted_test(predictor, subject, *rest):
        tested.append(f"{subject.method}-{subject.seed}")
        return evaluate_task(predictor, subject, *rest)

    monkeypatch.setattr(Trainer, "fit", counted_fit)
    monkeypatch.setattr(evaluation, "evaluate_task", counted_test)
    return trained, tested


@pytest.mark.slow
def test_shared_trainings_run_once_and_finished_cells_never_again(tmp_path, counted):
    trained, tested = counted
    run_folder = digits_run(tmp_path)
    rows = plans(run_folder.recipe, ("mle", "ts", "mcd", "kflla", "de", "sgpa"))
    outcome = benchmark(run_folder, rows, seeds=2)
    assert outcome.failures == []
    names = ("mle", "warm", "sgpa")
    assert sorted(trained) == sorted(f"kernel-{name}-{seed}" for name in names for seed in (0, 1))
    assert len(tested) == 5 * 2 + 1  # there is one ensemble
    before = (tmp_path / "results.json").read_bytes()
    trained.clear()
    tested.clear()
    benchmark(run_folder, rows, seeds=2)
    assert (trained, tested) == ([], [])
    assert (tmp_path / "results.json").read_bytes() == before
    more = benchmark(run_folder, [*rows, plan(run_folder.recipe, "sgpae")], seeds=2)  # its members exist
    assert (trained, tested) == ([], ["sgpae-0"])
    assert {record["method"] for record in more.results["records"]} == {
        *("mle", "ts", "mcd", "kflla", "de", "sgpa", "sgpae")
    }
    (tmp_path / "cells" / "kernel-mcd-1" / "results.json").unlink()
    benchmark(run_folder, rows, seeds=2)
    assert tested == ["sgpae-0", "mcd-1"]
    assert (tmp_path / "results.json").read_bytes() == before


def test_jobs_need_the_stage_before_and_all_members(tmp_path):
    run_folder = digits_run(tmp_path)
    cells = grid(plans(run_folder.recipe, ("mle", "de", "sgpa")), 1, 1)
    jobs = {job.name: job.needs for job in jobs_of(run_folder, cells)}
    assert jobs == {
        "kernel-mle-0": (),
        "kernel-mle-1": (),  # a member of the ensemble
        "kernel-warm-0": (),
        "kernel-sgpa-0": ("kernel-warm-0",),
        "test-kernel-mle-0": ("kernel-mle-0",),
        "test-kernel-de-0": ("kernel-mle-0", "kernel-mle-1"),
        "test-kernel-sgpa-0": ("kernel-sgpa-0",),
    }


def test_a_failing_cell_does_not_stop_the_benchmark(tmp_path, monkeypatch, caplog):
    run_folder, fit = digits_run(tmp_path), Trainer.fit

    def failing(trainer):
        if "warm" in trainer.directory.name:
            raise NumericalError("seed 0, step 3: nll is not finite")
        return fit(trainer)

    monkeypatch.setattr(Trainer, "fit", failing)
    rows = plans(run_folder.recipe, ("mle", "sgpa"))
    with caplog.at_level(logging.WARNING, "sgpa.experiments"):
        outcome = benchmark(run_folder, rows, seeds=1)
    assert [f.job for f in outcome.failures] == ["kernel-warm-0", "kernel-sgpa-0", "test-kernel-sgpa-0"]
    assert "kernel-warm-0 failed: seed 0, step 3: nll is not finite" in caplog.messages
    assert {record["method"] for record in outcome.results["records"]} == {"mle"}
    monkeypatch.setattr(Trainer, "fit", fit)
    assert len(benchmark(run_folder, rows, seeds=1).failures) == 3
    outcome = benchmark(run_folder, rows, seeds=1, retry=True)
    assert outcome.failures == []
    assert {record["method"] for record in outcome.results["records"]} == {"mle", "sgpa"}
    assert list((tmp_path / "failed").iterdir()) == []


def test_a_folder_of_other_settings_is_refused_and_unchanged(tmp_path):
    run_folder = digits_run(tmp_path)
    rows = plans(run_folder.recipe, ("mle",))
    benchmark(run_folder, rows, seeds=1)

    def content():
        return {file: file.read_bytes() for file in sorted(tmp_path.rglob("*")) if file.is_file()}

    before = content()
    other = digits_run(tmp_path, "optim.lr=0.001", "model.dropout=0.2")
    with pytest.raises(CheckpointError, match=r"model\.dropout is 0\.1 there and 0\.2 now; optim\.lr is"):
        benchmark(other, rows, seeds=1)
    named = replace(run_folder, recipe=replace(run_folder.recipe, name="mine"))
    with pytest.raises(CheckpointError, match="holds runs of recipe digits, not of mine"):
        benchmark(named, rows, seeds=1)
    assert content() == before
    benchmark(digits_run(tmp_path, "seeds=7"), rows, seeds=1)  # how many cells there are may change
    assert RunFolder.at(tmp_path).recipe == run_folder.recipe


def test_missing_settings_of_an_old_folder_take_their_defaults(tmp_path):
    digits_run(tmp_path).claim()
    file = tmp_path / "recipe.json"
    saved = read_json(file, dict)
    del saved["values"]["sgpa"]["dropout_at_prediction"], saved["values"]["sgpa"]["attention"]["joint"]
    del saved["values"]["optim"]["weight_decay"]
    write_json(file, saved)
    ours = digits_run(tmp_path, "optim.weight_decay=0")
    assert RunFolder.at(tmp_path).recipe == ours.recipe
    ours.claim()
    with pytest.raises(CheckpointError, match=r"sgpa\.dropout_at_prediction is False there and True now"):
        digits_run(tmp_path, "optim.weight_decay=0", "sgpa.dropout_at_prediction=true").claim()
    saved["values"]["sgpa"]["forgotten"] = 3
    write_json(file, saved)
    with pytest.raises(CheckpointError, match=r"recipe\.json: Sgpa has unknown fields forgotten"):
        RunFolder.at(tmp_path)


def test_a_folder_keeps_its_settings_when_the_recipe_changes(tmp_path, monkeypatch):
    run_folder = digits_run(tmp_path)
    run_folder.claim()
    now = replace(DIGITS, kernel=KernelConfig(), optim=replace(DIGITS.optim, lr=0.5))
    monkeypatch.setitem(RECIPES, "digits", now)
    assert RunFolder.at(tmp_path).recipe == run_folder.recipe
    with pytest.raises(CheckpointError, match=r"kernel\.locality is .* there and \[\] now"):
        digits_run(tmp_path).claim()
    saved = read_json(tmp_path / "recipe.json", dict)
    saved["values"]["optim"]["kind"] = "Another"
    write_json(tmp_path / "recipe.json", saved)
    with pytest.raises(CheckpointError, match=r"recipe\.json: unknown config type 'Another'"):
        RunFolder.at(tmp_path)


def test_a_benchmark_of_no_seeds_is_refused(tmp_path):
    run_folder = digits_run(tmp_path)
    with pytest.raises(ConfigError, match=r"seeds=0 \(allowed: 1 to"):
        benchmark(run_folder, plans(run_folder.recipe, ("mle",)), seeds=0)


def test_torchrun_refuses_an_executor(tmp_path, monkeypatch):
    monkeypatch.setattr("sgpa.training.process_group.world", lambda: 2)
    monkeypatch.setattr("sgpa.training.process_group.begin", lambda _: None)
    run_folder = digits_run(tmp_path)
    with pytest.raises(ConfigError, match="leave the executor out"):
        benchmark(run_folder, plans(run_folder.recipe, ("mle",)), executor=Processes(2, silent))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_benchmark_that_is_killed_repeatedly_gives_the_same_bytes(tmp_path):
    command = [sys.executable, str(ROOT / "tests" / "support" / "killed_runs.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for how in ("moments", "writes"):
        for cell in sorted((tmp_path / "whole" / "cells").iterdir()):
            again = tmp_path / how / "cells" / cell.name
            assert read_json(again / "results.json", dict) == read_json(cell / "results.json", dict)
        whole, killed = ((tmp_path / name / "results.json").read_bytes() for name in ("whole", how))
        assert whole == killed


@pytest.mark.parametrize(("method", "served"), [("mle", 0), ("ts", 0), ("mcd", 1), ("sgpa", 1), ("sgpae", 2)])
def test_predictors_that_sample_corrupted_sets_on_a_gpu_are_compiled(tmp_path, monkeypatch, method, served):
    monkeypatch.setattr(evaluation, "SERVED_ROWS", 20)
    run_folder = digits_run(tmp_path)
    row = plan(run_folder.recipe, method)
    calibrated = calibrate(run_folder, row, 0, train(run_folder, row, 0))
    assert fast(calibrated) is calibrated.predictor
    gpu = replace(calibrated, run_folder=replace(run_folder, device="cuda:0"))
    assert fast(gpu) is calibrated.predictor  # digits have few shifted sets
    if served:  # enough samples that two sets of draws agree
        members = tuple(member.with_samples(SAMPLES) for member in gpu.members)
        gpu = replace(gpu, members=members, predictor=row.method.combine(members, gpu.combined))
    many = replace(gpu, task=replace(gpu.task, corrupted=lambda: None))
    predictor = fast(many)
    members = getattr(predictor, "members", (predictor,))
    assert sum(isinstance(member, Served) for member in members) == served
    x = gpu.task.splits.test.inputs[:20]
    a, b = predictor.predict(x).probabilities, gpu.predictor.predict(x).probabilities
    assert (a - b).abs().max() < (0.03 if served else 1e-9)


SAMPLES = 400


def test_the_temperature_of_an_ensemble_is_fitted_once_and_exported(tmp_path):
    run_folder = digits_run(
        tmp_path / "runs", "ensemble_temperature=true", "optim.epochs=20", "optim.lr=0.01"
    )
    run_folder.claim()
    row = plan(run_folder.recipe, "de")
    calibrated = calibrate(run_folder, row, 0, train(run_folder, row, 0))
    assert 0.1 < float(calibrated.combined["temperature"]) < 10
    assert calibrated.combined["temperature"] != 1
    again = calibrate(run_folder, row, 0)  # from disk
    assert again.combined == calibrated.combined
    x = calibrated.task.splits.test.inputs[:20]
    expected = calibrated.predictor.predict(x).probabilities
    copy = export(run_folder.cell(row, 0), tmp_path / "copy")
    assert copy == tmp_path / "copy"
    assert torch.equal(open_trained(copy).predictor.predict(x).probabilities, expected)


def test_a_stopped_test_is_resumed_unless_the_model_has_changed(tmp_path, monkeypatch):
    run_folder = digits_run(tmp_path)
    row = plan(run_folder.recipe, "mle")
    train(run_folder, row, 0)
    evaluate_cell(run_folder, row, 0)
    file = run_folder.cell(row, 0) / "results.json"
    whole = file.read_bytes()
    predicted, evaluate_task = [], evaluation.evaluate_task

    def stopped(*args):
        evaluate_task(*args)
        raise KeyboardInterrupt

    def counted(predictor, *rest):
        predict = predictor.predict
        monkeypatch.setattr(type(predictor), "predict", lambda *a: predicted.append(1) or predict(*a[1:]))
        return evaluate_task(predictor, *rest)

    monkeypatch.setattr(evaluation, "evaluate_task", stopped)
    with pytest.raises(KeyboardInterrupt):
        evaluate_cell(run_folder, row, 0, again=True)
    monkeypatch.setattr(evaluation, "evaluate_task", counted)
    evaluate_cell(run_folder, row, 0, again=False)  # results.json exists
    assert not predicted
    file.unlink()
    evaluate_cell(run_folder, row, 0)
    assert len(predicted) == 1  # the examples, which are shown and not measured
    assert file.read_bytes() == whole
    assert not (file.parent / "tested.jsonl").exists()

    file.unlink()
    monkeypatch.setattr(evaluation, "evaluate_task", stopped)
    with pytest.raises(KeyboardInterrupt):
        evaluate_cell(run_folder, row, 0)
    weights = run_folder.model_folder(row, 0) / "model.safetensors"
    tensors, _ = read_tensors(weights)
    write_tensors(weights, tensors | {"head.bias": tensors["head.bias"] + 1})
    monkeypatch.setattr(evaluation, "evaluate_task", counted)
    predicted.clear()
    evaluate_cell(run_folder, row, 0)
    assert len(predicted) > 1
