"""A benchmark on two Ray workers, one of which is killed during a job."""

import os
import signal
import sys
import uuid
from functools import partial
from pathlib import Path

import pytest

from sgpa.core.errors import CheckpointError, ConfigError
from sgpa.experiments.recipes import plans
from sgpa.experiments.runner import Job, RunFolder, benchmark, run_jobs
from sgpa.experiments.runner.executors import ray as executor_module
from sgpa.experiments.runner.executors.ray import Cluster

ray = pytest.importorskip("ray", reason="needs the extra `cluster`")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]  # in one process: they share a cluster
TINY = [
    *("optim.epochs=2", "stage1.epochs=40", "stage2.epochs=2", "stage1.select_every=1", "task.train=50"),
    *("model.depth=1", "model.width=8", "model.heads=2", "sgpa.attention.num_global=2"),
    *("evaluation.rows=20", "evaluation.ood_rows=20"),
]
METHODS = ("mle", "sgpa")


@pytest.fixture(scope="module", autouse=True)
def two_workers():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_DISABLE_IMPORT_WARNING"] = "1"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def working(job):
    """The process that runs a job, if there is one."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes().startswith(f"ray::{job}".encode()):
                return int(folder.name)
        except OSError:
            continue
    return None


class Killer:
    """An `on_progress` that kills the process of a job once, during the job."""

    def __init__(self, label, job):
        self.label, self.job, self.killed = label, job, None

    def __call__(self, work, done, total, _):
        if work == self.label and self.killed is None and 0 < done < total:
            self.killed = working(self.job)
            if self.killed is not None:
                os.kill(self.killed, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="finds the process to kill in /proc")
def test_a_benchmark_with_a_killed_worker_gives_the_same_bytes(tmp_path):
    grid = RunFolder.of("digits", tmp_path / "cluster", TINY)
    killer = Killer("sgpa stage 1, seed 0", "kernel-warm-0")
    outcome = benchmark(grid, plans(grid.recipe, METHODS), seeds=1, executor=Cluster("auto", killer))
    assert outcome.failures == []
    assert killer.killed is not None
    alone = RunFolder.of("digits", tmp_path / "alone", TINY)
    benchmark(alone, plans(alone.recipe, METHODS), seeds=1)
    cells = sorted(folder.name for folder in (tmp_path / "cluster" / "cells").iterdir())
    assert len(cells) == 2
    for name in ("results.json", *(f"cells/{cell}/results.json" for cell in cells)):
        first, second = ((tmp_path / how / name).read_bytes() for how in ("cluster", "alone"))
        assert first == second, name


def die(marks: Path, on_progress):
    """Leave a mark and end like a process that the system has killed."""
    (marks / uuid.uuid4().hex).touch()
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(on_progress):
    raise CheckpointError("this folder holds something else")


def note(file: Path, on_progress):
    on_progress("work", 1, 2, "half")
    file.touch()


def test_a_job_that_always_dies_is_a_failure_and_other_jobs_run(tmp_path, monkeypatch):
    monkeypatch.setattr(executor_module, "RETRIES", 1)
    (tmp_path / "marks").mkdir()
    jobs = [
        Job("dies", partial(die, tmp_path / "marks")),
        Job("refuses", refuse),
        Job("waits", partial(note, tmp_path / "never"), ("dies",)),
        Job("works", partial(note, tmp_path / "done")),
    ]
    heard = []
    with Cluster("auto", lambda *line: heard.append(line)) as executor:
        failures = {f.job: f.reason for f in run_jobs(jobs, executor, tmp_path / "failed")}
    assert set(failures) == {"dies", "refuses", "waits"}
    assert failures["dies"].startswith("dies: its process died 2 times")
    assert failures["refuses"] == "this folder holds something else"
    assert failures["waits"] == "not run, because dies failed"
    assert len(list((tmp_path / "marks").iterdir())) == 2
    assert (tmp_path / "done").exists()
    assert heard == [("work", 1, 2, "half")]
    assert ray.is_initialized()  # a cluster that existed before is not stopped


def test_a_folder_that_is_not_shared_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(executor_module, "write_text", lambda *_: None)
    monkeypatch.setattr(executor_module, "file_visible", lambda mark: Path(mark).exists())
    run_folder = RunFolder.of("digits", tmp_path / "grid", TINY)
    with pytest.raises(ConfigError, match=r"does not see .*grid: the folder of the runs must be on a file"):
        benchmark(run_folder, plans(run_folder.recipe, ("mle",)), seeds=1, executor=Cluster("auto", print))
    assert not (tmp_path / "grid" / "trainings").exists()


def test_cluster_errors_name_the_problem(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"device='cuda:1' \(allowed: cpu, cuda\)"):
        Cluster("auto", print).ready(tmp_path, "cuda:1")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)

    def nobody(**_):
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(ray, "init", nobody)
    with pytest.raises(ConfigError, match="no Ray cluster answers at 'auto': start one with"):
        Cluster("auto", print).__enter__()
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1"):
        with pytest.raises(ConfigError, match=f"no Ray cluster answers at '{address}'.*refused"):
            Cluster(address, print).__enter__()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install ray"):
        Cluster("auto", print)
