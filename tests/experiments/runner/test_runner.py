"""Jobs, grids of methods and seeds, and what becomes of them when something dies."""

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
from sgpa.experiments.runner import Job, RunFolder, benchmark, cells, run_jobs
from sgpa.experiments.runner.benchmark import jobs_of
from sgpa.experiments.runner.executors.processes import Processes
from sgpa.experiments.runner.export import export
from sgpa.experiments.runner.jobs import InProcess
from sgpa.inference.serve import Served
from sgpa.models import KernelConfig
from support.paths import ROOT

TINY = [
    *(
        "optim.epochs=1",
        "stage1.epochs=2",
        "stage2.epochs=1",
        "task.train=50",
        "model.depth=1",
        "model.width=8",
    ),
    *("evaluation.rows=20", "evaluation.ood_rows=20", "model.heads=2", "ensemble=2", "ensembles=1"),
]
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


def silent(*_):
    pass


def place_of(directory, *settings):
    return RunFolder.of("digits", directory, [*TINY, *settings])


# jobs ---------------------------------------------------------------------------------------------------


def job(name, order, *needs, error=None):
    def work(announce):
        order.append(name)
        if error is not None:
            raise error

    return Job(name, work, needs)


def test_jobs_run_in_the_order_of_their_needs(tmp_path):
    order = []
    jobs = [job("c", order, "a", "b"), job("b", order, "a"), job("a", order), job("d", order)]
    assert run_jobs(jobs, InProcess(silent), tmp_path) == []
    assert order.index("a") < order.index("b") < order.index("c")
    assert sorted(order) == ["a", "b", "c", "d"]


def test_a_failure_is_told_and_kept_and_the_others_go_on(tmp_path):
    order, told = [], []
    bad = NumericalError("layer 1: K_gg is not\npositive definite")
    jobs = [
        job("train", order, error=bad),
        job("test", order, "train"),
        job("report", order, "test"),
        job("other", order, error=KeyError("x")),
        job("last", order),
    ]
    found = {
        f.job: f.reason for f in run_jobs(jobs, InProcess(silent), tmp_path / "failed", tell=told.append)
    }
    assert order == ["train", "other", "last"]
    assert found == {
        "train": "layer 1: K_gg is not positive definite",
        "other": "KeyError: 'x'",
        "test": "not run, because train failed",
        "report": "not run, because test failed",
    }
    assert told == [
        "train failed: layer 1: K_gg is not positive definite",
        "other failed: KeyError: 'x'",
    ]
    assert sorted(file.name for file in (tmp_path / "failed").iterdir()) == ["other.txt", "train.txt"]
    assert "Traceback" in (tmp_path / "failed" / "train.txt").read_text()


def test_what_failed_before_is_tried_again_only_when_asked(tmp_path):
    order, told = [], []
    run_jobs([job("a", order, error=KeyError("x"))], InProcess(silent), tmp_path)
    run_jobs([job("of another call", order, error=KeyError("y"))], InProcess(silent), tmp_path)
    jobs = [job("a", order), job("b", order, "a"), job("c", order)]
    order.clear()
    found = run_jobs(jobs, InProcess(silent), tmp_path, tell=told.append)
    assert order == ["c"]
    assert told == ["a failed before and is left alone: KeyError: 'x'"]
    assert {f.job: f.reason for f in found} == {"a": "KeyError: 'x'", "b": "not run, because a failed"}
    assert run_jobs(jobs, InProcess(silent), tmp_path, retry=True) == []
    assert order == ["c", "a", "b", "c"]
    assert run_jobs(jobs, InProcess(silent), tmp_path) == []  # a success wipes the failure out


# processes ----------------------------------------------------------------------------------------------


def note(folder: Path, name: str, announce):
    announce(name, 1, 1, "done")
    (folder / f"{name}-{time.monotonic_ns()}").touch()


def die(folder: Path, name: str, times: int, announce):
    """End like a process that the system has killed, the first few times."""
    note(folder, name, announce)
    if len(list(folder.glob(f"{name}-*"))) <= times:
        os.kill(os.getpid(), signal.SIGKILL)


def refuse(announce):
    raise CheckpointError("this folder holds something else")


def test_processes_share_the_work_and_survive_the_death_of_one(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    jobs = [
        Job("dies once", partial(die, marks, "once", 1)),
        Job("after it", partial(note, marks, "after"), ("dies once",)),
        Job("refuses", refuse),
        Job("always dies", partial(die, marks, "always", 99), ("after it",)),
    ]
    with Processes(2, lambda *_: None) as executor:
        found = {f.job: f.reason for f in run_jobs(jobs, executor, tmp_path / "failed")}
    assert set(found) == {"refuses", "always dies"}
    assert found["refuses"] == "this folder holds something else"
    assert found["always dies"].startswith("its process, or one beside it, died 3 times")
    assert len(list(marks.glob("once-*"))) == 2
    assert len(list(marks.glob("always-*"))) == 3


def test_what_processes_tell_is_heard(tmp_path):
    heard, patience = set(), time.monotonic() + 60
    with Processes(1, lambda work, *_: heard.add(work)) as executor:
        executor.submit(Job("tells", partial(note, tmp_path, "told"))).result()
        while "told" not in heard and time.monotonic() < patience:  # news travel by themselves
            executor.listen()
            time.sleep(0.01)
    assert "told" in heard


def processes_with(token):
    """The processes that have a word in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if token.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@linux
def test_processes_end_when_their_parent_is_killed(tmp_path):
    code = """
import sys, time
from functools import partial
from pathlib import Path
from sgpa.runner import Job, run_jobs
from sgpa.runner.processes import Processes
from sgpa.serving import Served
from waiting import wait
if __name__ == "__main__":
    jobs = [Job(name, partial(wait, Path(sys.argv[1]) / name)) for name in ("a", "b")]
    with Processes(2, print) as executor:
        run_jobs(jobs, executor, Path(sys.argv[1]))
"""
    (tmp_path / "main.py").write_text(code)
    (tmp_path / "waiting.py").write_text(
        "import time\ndef wait(file, _):\n    file.touch()\n    time.sleep(300)\n"
    )
    token = uuid.uuid4().hex
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "main.py"), str(tmp_path)], env=os.environ | {"TOKEN_OF_TEST": token}
    )
    until = time.monotonic() + 60
    while not all((tmp_path / name).exists() for name in ("a", "b")):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert len(processes_with(token)) >= 3
    parent.kill()
    parent.wait()
    until = time.monotonic() + 20
    while left := processes_with(token):
        assert time.monotonic() < until, left
        time.sleep(0.2)


# benchmarks ---------------------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch):
    """What was trained and what was tested, by name."""
    trained, tested = [], []
    fit, examine = cells.Trainer.fit, cells.examine

    def train(trainer):
        if trainer.finished() is None:
            trained.append(trainer.directory.name)
        return fit(trainer)

    def test(predictor, subject, *rest):
        tested.append(f"{subject.method}-{subject.seed}")
        return examine(predictor, subject, *rest)

    monkeypatch.setattr(cells.Trainer, "fit", train)
    monkeypatch.setattr(cells, "examine", test)
    return trained, tested


def test_shared_trainings_are_done_once_and_finished_cells_never_again(tmp_path, counted):
    trained, tested = counted
    place = place_of(tmp_path)
    rows = plans(place.recipe, ("mle", "ts", "mcd", "kflla", "de", "sgpa"))
    outcome = benchmark(place, rows, seeds=2)
    assert outcome.failures == []
    names = ("mle", "warm", "sgpa")
    assert sorted(trained) == sorted(f"kernel-{name}-{seed}" for name in names for seed in (0, 1))
    assert len(tested) == 5 * 2 + 1  # there is one ensemble
    before = (tmp_path / "results.json").read_bytes()
    trained.clear()
    tested.clear()
    benchmark(place, rows, seeds=2)
    assert (trained, tested) == ([], [])
    assert (tmp_path / "results.json").read_bytes() == before
    more = benchmark(place, [*rows, plan(place.recipe, "sgpae")], seeds=2)  # its members are there
    assert (trained, tested) == ([], ["sgpae-0"])
    assert {record["method"] for record in more.results["records"]} == {
        *("mle", "ts", "mcd", "kflla", "de", "sgpa", "sgpae")
    }
    (tmp_path / "cells" / "kernel-mcd-1" / "results.json").unlink()
    benchmark(place, rows, seeds=2)
    assert tested == ["sgpae-0", "mcd-1"]
    assert (tmp_path / "results.json").read_bytes() == before


def test_every_seed_of_a_training_is_a_job(tmp_path):
    place = place_of(tmp_path)
    rows = plans(place.recipe, ("mle", "de", "sgpa"))
    jobs = {job.name: job for job in jobs_of(place, rows, 2)}
    assert [name for name in jobs if not name.startswith("test-")] == [
        f"kernel-{name}-{seed}" for name in ("mle", "warm", "sgpa") for seed in (0, 1)
    ]
    assert jobs["kernel-sgpa-1"].needs == ("kernel-warm-1",)
    assert jobs["test-kernel-de-0"].needs == ("kernel-mle-0", "kernel-mle-1")
    assert all(job.alone == name.startswith("test-") for name, job in jobs.items())


def test_a_cell_that_fails_leaves_the_rest_of_the_benchmark_alone(tmp_path, monkeypatch):
    place, told = place_of(tmp_path), []
    fit = cells.Trainer.fit

    def failing(trainer):
        if "warm" in trainer.directory.name:
            raise NumericalError("seed 0, step 3: nll is not finite")
        return fit(trainer)

    monkeypatch.setattr(cells.Trainer, "fit", failing)
    rows = plans(place.recipe, ("mle", "sgpa"))
    outcome = benchmark(place, rows, seeds=1, tell=told.append)
    assert [f.job for f in outcome.failures] == ["kernel-warm-0", "kernel-sgpa-0", "test-kernel-sgpa-0"]
    assert told == ["kernel-warm-0 failed: seed 0, step 3: nll is not finite"]
    assert {record["method"] for record in outcome.results["records"]} == {"mle"}
    monkeypatch.setattr(cells.Trainer, "fit", fit)
    assert len(benchmark(place, rows, seeds=1).failures) == 3
    outcome = benchmark(place, rows, seeds=1, retry=True)
    assert outcome.failures == []
    assert {record["method"] for record in outcome.results["records"]} == {"mle", "sgpa"}
    assert list((tmp_path / "failed").iterdir()) == []


def test_a_folder_of_other_settings_is_refused_and_left_as_it_was(tmp_path):
    place = place_of(tmp_path)
    rows = plans(place.recipe, ("mle",))
    benchmark(place, rows, seeds=1)

    def content():
        return {file: file.read_bytes() for file in sorted(tmp_path.rglob("*")) if file.is_file()}

    before = content()
    other = place_of(tmp_path, "optim.lr=0.001", "model.dropout=0.2")
    with pytest.raises(CheckpointError, match=r"model\.dropout is 0\.1 there and 0\.2 now; optim\.lr is"):
        benchmark(other, rows, seeds=1)
    named = replace(place, recipe=replace(place.recipe, name="mine"))
    with pytest.raises(CheckpointError, match="holds runs of recipe digits, not of mine"):
        benchmark(named, rows, seeds=1)
    assert content() == before
    benchmark(place_of(tmp_path, "seeds=7"), rows, seeds=1)  # how many cells there are may change
    assert RunFolder.at(tmp_path).recipe == place.recipe


def test_a_folder_from_before_an_option_existed_goes_on_with_its_default(tmp_path):
    place_of(tmp_path).claim()
    file = tmp_path / "recipe.json"
    saved = read_json(file)
    del saved["values"]["sgpa"]["dropout_at_prediction"], saved["values"]["sgpa"]["attention"]["tied"]
    del saved["values"]["optim"]["weight_decay"]
    write_json(file, saved)
    ours = place_of(tmp_path, "optim.weight_decay=0")
    assert RunFolder.at(tmp_path).recipe == ours.recipe
    ours.claim()
    with pytest.raises(CheckpointError, match=r"sgpa\.dropout_at_prediction is False there and True now"):
        place_of(tmp_path, "optim.weight_decay=0", "sgpa.dropout_at_prediction=true").claim()
    saved["values"]["sgpa"]["forgotten"] = 3
    write_json(file, saved)
    with pytest.raises(CheckpointError, match=r"sgpa\.forgotten is 3 there and None now"):
        RunFolder.at(tmp_path)


def test_a_folder_opens_as_it_was_made_though_the_recipe_has_changed_since(tmp_path, monkeypatch):
    place = place_of(tmp_path)
    place.claim()
    now = replace(DIGITS, kernel=KernelConfig(), optim=replace(DIGITS.optim, lr=0.5))
    monkeypatch.setitem(RECIPES, "digits", now)
    assert RunFolder.at(tmp_path).recipe == place.recipe
    with pytest.raises(CheckpointError, match=r"kernel\.locality is .* there and \[\] now"):
        place_of(tmp_path).claim()
    saved = read_json(tmp_path / "recipe.json")
    saved["values"]["optim"]["kind"] = "Another"
    write_json(tmp_path / "recipe.json", saved)
    with pytest.raises(CheckpointError, match="speaks of a Another"):
        RunFolder.at(tmp_path)


def test_an_executor_of_ones_own_is_not_for_torchrun(tmp_path, monkeypatch):
    monkeypatch.setattr("sgpa.training.process_group.world", lambda: 2)
    monkeypatch.setattr("sgpa.training.process_group.begin", lambda _: None)
    place = place_of(tmp_path)
    with pytest.raises(ConfigError, match="leave the executor out"):
        benchmark(place, plans(place.recipe, ("mle",)), executor=Processes(2, silent))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_benchmark_that_is_killed_again_and_again_gives_the_bytes_of_an_undisturbed_one(tmp_path):
    command = [sys.executable, str(ROOT / "tests" / "support" / "killed_runs.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for how in ("moments", "writes"):
        for cell in sorted((tmp_path / "whole" / "cells").iterdir()):
            assert read_json(tmp_path / how / "cells" / cell.name / "results.json") == read_json(
                cell / "results.json"
            )
        whole, killed = ((tmp_path / name / "results.json").read_bytes() for name in ("whole", how))
        assert whole == killed


def test_an_interrupt_does_not_wait_for_running_jobs():
    def interrupted():
        with Processes(2, lambda *_: None) as pool:
            pool.submit(Job("slow", partial(_sleep, 60.0)))
            time.sleep(3.0)
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - started < 30


def _sleep(seconds, announce):
    time.sleep(seconds)


@pytest.mark.parametrize(("method", "served"), [("mle", 0), ("ts", 0), ("mcd", 1), ("sgpa", 1), ("sgpae", 2)])
def test_what_samples_many_corrupted_sets_on_a_gpu_is_compiled(tmp_path, method, served):
    place = place_of(tmp_path)
    row = plan(place.recipe, method)
    for step in range(len(row.stages)):
        cells.train(place, row, step, row.members(0))
    ready = cells.prepare(place, row, 0)
    assert cells._fast(ready) is ready.predictor
    gpu = replace(ready, place=replace(place, device="cuda:0"))
    assert cells._fast(gpu) is ready.predictor  # digits have few shifted sets
    many = replace(gpu, task=replace(ready.task, corrupted=lambda: None))
    fast = cells._fast(many)
    members = getattr(fast, "members", (fast,))
    assert sum(isinstance(member, Served) for member in members) == served
    x = ready.task.splits.test.inputs[:50]
    a, b = fast.predict(x).probabilities, ready.predictor.predict(x).probabilities
    assert (a - b).abs().max() < (0.3 if served else 1e-9)  # other draws, or the very same


def test_an_ensembles_temperature_is_found_once_and_carried_along(tmp_path):
    place = place_of(tmp_path / "runs", "ensemble_temperature=true", "optim.epochs=20", "optim.lr=0.01")
    place.claim()
    row = plan(place.recipe, "de")
    cells.train(place, row, 0, row.members(0))
    ready = cells.prepare(place, row, 0)
    assert 0.1 < float(ready.pooled["temperature"]) < 10
    cells.assess(place, row, 0)
    before = cells.prepare(place, row, 0)
    assert before.pooled == ready.pooled
    x = ready.task.splits.test.inputs[:20]
    expected = ready.predictor.predict(x).probabilities
    copy = export(place.cell(row, 0), tmp_path / "copy")
    assert torch.equal(cells.open_trained(copy).predictor.predict(x).probabilities, expected)


def test_a_test_that_was_stopped_goes_on_unless_the_model_is_another_one(tmp_path, monkeypatch):
    place = place_of(tmp_path)
    row = plan(place.recipe, "mle")
    cells.train(place, row, 0, (0,))
    cells.assess(place, row, 0)
    file = place.cell(row, 0) / "results.json"
    whole = file.read_bytes()
    predicted, examine = [], cells.examine

    def stopped(*args):
        examine(*args)
        raise KeyboardInterrupt

    def counted(predictor, *rest):
        predict = predictor.predict
        monkeypatch.setattr(type(predictor), "predict", lambda *a: predicted.append(1) or predict(*a[1:]))
        return examine(predictor, *rest)

    monkeypatch.setattr(cells, "examine", stopped)
    with pytest.raises(KeyboardInterrupt):
        cells.assess(place, row, 0, again=True)
    monkeypatch.setattr(cells, "examine", counted)
    cells.assess(place, row, 0, again=False)  # results.json is of before
    assert not predicted
    file.unlink()
    cells.assess(place, row, 0)
    assert len(predicted) == 1  # the examples, which are shown and not measured
    assert file.read_bytes() == whole
    assert not (file.parent / "tested.jsonl").exists()

    file.unlink()
    monkeypatch.setattr(cells, "examine", stopped)
    with pytest.raises(KeyboardInterrupt):
        cells.assess(place, row, 0)
    weights = place.model_folder(row, 0) / "model.safetensors"
    tensors, _ = read_tensors(weights)
    write_tensors(weights, tensors | {"head.bias": tensors["head.bias"] + 1})
    monkeypatch.setattr(cells, "examine", counted)
    predicted.clear()
    cells.assess(place, row, 0)
    assert len(predicted) > 1
