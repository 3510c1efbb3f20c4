"""Two commands in one folder, a full disk, SIGTERM: nothing is lost, and one line says what happened."""

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from sgpa.core import files
from sgpa.core.errors import ConfigError, disk_full
from sgpa.core.files import read_json, write_json
from sgpa.experiments.recipes import RECIPES, plan, plans
from sgpa.experiments.runner import Job, RunFolder, benchmark, locked, run_jobs
from sgpa.experiments.runner.executors.in_process import InProcess
from sgpa.training import lock as lock_module
from support.fake_results import record
from support.paths import ROOT
from support.terminal import sgpa

TINY = [
    *("optim.epochs=1", "stage1.epochs=1", "stage2.epochs=1", "task.train=50", "model.depth=1"),
    *("model.width=8", "model.heads=2", "sgpa.attention.num_global=2", "ensemble=2", "ensembles=1"),
    *("evaluation.rows=20", "evaluation.ood_rows=20"),
]
PATIENCE = 120.0  # seconds until a test gives up waiting for another process
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "model.safetensors")


def silent(*_):
    pass


# one writer at a time -------------------------------------------------------------------------------------


def test_a_second_command_waits_for_the_first(tmp_path, caplog):
    order = []

    def second():
        with locked(tmp_path):
            order.append("second")

    with locked(tmp_path):
        thread = threading.Thread(target=second)
        waiting = threading.Event()
        handler = caplog.handler
        emit = handler.emit
        handler.emit = lambda record: (emit(record), waiting.set())
        thread.start()
        assert waiting.wait(PATIENCE)
        order.append("first")
    thread.join(PATIENCE)
    assert order == ["first", "second"]
    assert caplog.messages == [f"{tmp_path} is in use by another command; waiting until it ends"]


def test_the_lock_is_free_after_an_error_and_can_be_taken_again(tmp_path, caplog):
    with pytest.raises(KeyError), locked(tmp_path):
        raise KeyError
    with locked(tmp_path):
        pass
    assert caplog.messages == []


def test_a_file_system_without_locks_gets_a_warning(tmp_path, caplog, monkeypatch):
    def refuse(lock, directory):
        raise NotImplementedError

    monkeypatch.setattr(lock_module, "_acquire", refuse)
    with locked(tmp_path):
        pass
    assert "has no locks" in caplog.text


def run_benchmark(folder):
    run_folder = RunFolder.of("digits", folder, TINY)
    outcome = benchmark(run_folder, plans(run_folder.recipe, ("mle",)), seeds=1)
    assert outcome.failures == []


@pytest.mark.slow
def test_two_equal_commands_at_the_same_time_both_succeed(tmp_path):
    context = multiprocessing.get_context("forkserver")  # which imports once, and then forks every command
    context.set_forkserver_preload(["sgpa.experiments.runner", "torch._dynamo"])
    commands = [context.Process(target=run_benchmark, args=(tmp_path / "run",)) for _ in range(2)]
    for command in commands:
        command.start()
    for command in commands:
        command.join(PATIENCE)
    assert [command.exitcode for command in commands] == [0, 0]
    run_benchmark(tmp_path / "alone")
    together, alone = (
        read_json(tmp_path / name / "results.json", dict)["records"] for name in ("run", "alone")
    )
    assert [record["metric"] for record in together] == [record["metric"] for record in alone]
    for one, other in zip(together, alone, strict=True):
        assert one["value"] == pytest.approx(other["value"], rel=1e-3)


# a full disk ----------------------------------------------------------------------------------------------


def fill(works, on_progress):
    if not works:
        raise FULL


def test_a_full_disk_is_not_a_failed_method(tmp_path):
    failed = tmp_path / "failed"
    (failure,) = run_jobs([Job("train", partial(fill, False))], InProcess(silent), failed)
    assert "No space left on device" in failure.reason
    assert "re-run the same command" in failure.reason
    assert run_jobs([Job("train", partial(fill, True))], InProcess(silent), failed) == []


def test_a_full_disk_is_recognised_behind_another_error():
    try:
        try:
            raise FULL
        except OSError as error:
            raise ConfigError("wrapped") from error
    except ConfigError as error:
        wrapped = error
    assert disk_full(wrapped)
    assert not disk_full(ConfigError("no disk involved"))


@pytest.mark.parametrize(
    "reason",
    [
        'IoError(Os { code: 28, kind: StorageFull, message: "No space left on device" })',
        "I/O error: No space left on device (os error 28)",
    ],
)
def test_a_full_disk_while_tensors_are_written_is_an_error_of_the_system(tmp_path, monkeypatch, reason):
    def save(tensors, path, metadata):
        path.write_bytes(b"cut short")
        raise SafetensorError(f"Error while serializing: {reason}")

    monkeypatch.setattr(files, "save_file", save)
    with pytest.raises(OSError, match=r"No space left on device: .*x\.safetensors") as caught:
        files.write_tensors(tmp_path / "x.safetensors", {"x": torch.zeros(10)})
    assert disk_full(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_while_the_page_is_drawn_is_one_line(tmp_path, monkeypatch):
    results = tmp_path / "results.json"
    write_json(results, {"schema": 1, "records": [record("mle", "nll", 0.3)]})  # a page of one figure
    write = Path.write_bytes
    for kind in (".svg", ".pdf", ".html"):

        def full(path, data, kind=kind):
            if f"{kind}." in path.name:  # a temporary file
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(path, data)

        monkeypatch.setattr(Path, "write_bytes", full)
        complaint = sgpa("report", results).complaint
        assert kind in complaint
        assert "No space left on device" in complaint
        assert "free some space" in complaint
    monkeypatch.undo()
    assert sgpa("report", results).code == 0
    assert not list(tmp_path.rglob("*.tmp"))


# SIGTERM --------------------------------------------------------------------------------------------------


def test_sigterm_gets_the_words_of_an_interrupt_and_status_143(tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("sgpa.training.trainer.Trainer.fit", lambda _: signal.raise_signal(signal.SIGTERM))
    words = [word for setting in TINY for word in ("--set", setting)]
    for command in ("train", "benchmark"):
        stopped = sgpa(command, "digits", "--out", tmp_path, *words)
        assert stopped.code == 128 + signal.SIGTERM
        assert "stopped; re-run the same command to resume" in stopped.err
        assert "Traceback" not in stopped.err
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.slow
def test_sigterm_stops_workers_and_leaks_nothing(tmp_path):
    command = [sys.executable, "-m", "sgpa", "demo", "--out", str(tmp_path), "--seeds", "2", "--workers", "2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    environment.pop("RANK", None)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    until = time.monotonic() + PATIENCE
    while not list(tmp_path.glob("trainings/*/log.jsonl")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert "stopped; re-run the same command to resume" in err
    for word in ("Traceback", "leaked", "semaphore"):
        assert word not in err


# splits of their own --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["de", "sgpae"])
def test_an_ensemble_needs_one_split_for_all_its_members(tmp_path, method):
    run_folder = RunFolder.of("cifar10", tmp_path, ["task.split=per-seed"])
    with pytest.raises(ConfigError, match="held-out rows"):
        plan(run_folder.recipe, method)
    plan(run_folder.recipe, "mle")
    plan(RECIPES["cifar10"], method)
