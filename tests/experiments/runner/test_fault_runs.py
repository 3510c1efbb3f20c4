"""Whole runs on broken disks: they end in one line, and the same command finishes them without --retry.

`python -m pytest -m faults`. Disks are tmpfs mounts of a given size, which need the right to mount.
"""

import multiprocessing
import os
import shutil
import signal
import subprocess
from functools import partial

import pytest

from sgpa.core.errors import LostWorker, is_temporary
from sgpa.core.files import read_json
from sgpa.experiments.runner import Job, run_jobs
from sgpa.experiments.runner.executors.in_process import InProcess
from sgpa.experiments.runner.executors.processes import Processes
from sgpa.training.run_state import RunFiles
from support.terminal import sgpa

SETTINGS = (
    *("optim.epochs=2", "stage1.epochs=1", "stage2.epochs=1", "task.train=50", "model.depth=1"),
    *(
        "model.width=8",
        "model.heads=2",
        "optim.select_every=1",
        "evaluation.rows=20",
        "evaluation.ood_rows=20",
    ),
)
KIB = (4, 12, 24, 36, 48, 60, 80, 120, 200, 400)  # a whole run with its page takes about 2 MiB


def mount(folder, *options):
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    if shutil.which("mount") is None or not mount(folder, "size=64m"):
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def benchmark(folder, *more):
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    outcome = sgpa("benchmark", "digits", "--out", folder, "--methods", "mle", "--seeds", "1", *words, *more)
    assert "Traceback" not in outcome.err + outcome.out, outcome.err
    return outcome


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert benchmark(folder).code == 0
    return records(folder)


def records(folder):
    return read_json(folder / "results.json", dict)["records"]


def finishes(folder, expected):
    outcome = benchmark(folder)
    assert outcome.code == 0, outcome.err
    assert records(folder) == expected
    assert not list(folder.rglob("*.tmp"))


@pytest.mark.slow
@pytest.mark.faults
def test_a_disk_that_is_full_at_ten_sizes(disk, expected):
    for size in KIB:
        folder = disk / f"run-{size}"
        used = sum(f.stat().st_blocks * 512 for f in disk.rglob("*") if f.is_file())
        assert mount(disk, "remount", f"size={used + size * 1024}")
        outcome = benchmark(folder)
        assert outcome.code in (1, 2), f"{size} KiB were enough"
        assert "No space left on device" in outcome.err + outcome.out
        assert mount(disk, "remount", "size=64m")
        finishes(folder, expected)
        shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.faults
def test_a_read_only_folder_is_one_line_and_needs_no_retry(disk, expected):
    (disk / "run").mkdir()
    assert mount(disk, "remount", "ro")
    outcome = benchmark(disk / "run")
    assert outcome.code in (1, 2)
    assert "Read-only file system" in outcome.err
    assert mount(disk, "remount", "rw")
    finishes(disk / "run", expected)


@pytest.mark.slow
@pytest.mark.faults
def test_a_folder_that_is_removed_in_training_is_made_again_or_one_line(tmp_path, expected, monkeypatch):
    log, removed = RunFiles.log, []

    def remove(files, line):
        log(files, line)
        if not removed:
            removed.append(1)
            shutil.rmtree(tmp_path / "run")

    monkeypatch.setattr(RunFiles, "log", remove)
    benchmark(tmp_path / "run")
    assert removed
    finishes(tmp_path / "run", expected)


@pytest.mark.slow
@pytest.mark.faults
def test_a_model_that_was_swapped_is_refused_and_not_trained_over(tmp_path, expected):
    folder = tmp_path / "run"
    benchmark(folder)
    weights = folder / "trainings" / "kernel-mle-0" / "model" / "model.safetensors"
    kept, other = weights.read_bytes(), tmp_path / "other"
    words = [word for setting in (*SETTINGS, "optim.lr=0.01") for word in ("--set", setting)]
    assert sgpa("train", "digits", "--out", other, "--method", "mle", *words).code == 0
    swapped = next(other.glob("trainings/*/model/model.safetensors")).read_bytes()
    weights.write_bytes(swapped)
    shutil.rmtree(folder / "cells")
    outcome = benchmark(folder)
    assert outcome.code in (1, 2)
    assert "is not the file that this training wrote" in outcome.err
    assert weights.read_bytes() == swapped
    weights.write_bytes(kept)
    shutil.rmtree(folder / "failed", ignore_errors=True)
    finishes(folder, expected)


@pytest.mark.slow
@pytest.mark.faults
def test_a_worker_that_is_killed_is_replaced(tmp_path, monkeypatch):
    assert benchmark(tmp_path / "alone", "--workers", "2").code == 0
    listen, killed = Processes.listen, []

    def kill(processes):
        begun = list((tmp_path / "run").glob("trainings/*/log.jsonl"))
        if begun and not killed:
            killed.extend(child.pid for child in multiprocessing.active_children()[:1])
            os.kill(killed[0], signal.SIGKILL)
        listen(processes)

    monkeypatch.setattr(Processes, "listen", kill)
    assert benchmark(tmp_path / "run", "--workers", "2").code == 0
    assert killed
    assert records(tmp_path / "run") == records(tmp_path / "alone")


def lose(works, on_progress):
    del on_progress
    if not works:
        raise LostWorker("its process died")


def test_a_lost_worker_is_not_a_failed_method(tmp_path):
    failed = tmp_path / "failed"
    (failure,) = run_jobs([Job("train", partial(lose, False))], InProcess(print), failed)
    assert failure.reason == "its process died; re-run the same command to resume"
    assert run_jobs([Job("train", partial(lose, True))], InProcess(print), failed) == []


def test_errors_from_outside_are_recognised():
    error = ValueError("wrapped")
    assert not is_temporary(error)
    error.__cause__ = PermissionError(13, "Permission denied", "a")
    assert is_temporary(error)
