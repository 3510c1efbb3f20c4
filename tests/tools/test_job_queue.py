"""The job queue: dependencies between commands, the limit on parallel commands, and stopping."""

import os
import shlex
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from sgpa.core.errors import InputError
from sgpa.experiments.recipes import RECIPES, override
from support.paths import ROOT
from tools import job_queue


@pytest.fixture(autouse=True)
def _poll_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_queue, "POLL_SECONDS", 0.02)


def jobs(folder: Path, text: str) -> Path:
    file = folder / "jobs.txt"
    file.write_text(text)
    return file


def test_job_starts_when_the_files_it_needs_exist(tmp_path: Path) -> None:
    last, first = "last; logs/first.rc, made; cat made", "first; ; echo one > made; exit 3"
    file = jobs(tmp_path, f"# second first\n{last}\n{first}\n\nnever; nothing; echo no\n")
    assert job_queue.run(file, tmp_path, 2) == {"first": 3, "last": 0}
    assert (tmp_path / "logs" / "last.log").read_text() == "one\n"
    assert (tmp_path / "logs" / "first.rc").read_text() == "3"


def test_status_files_of_an_earlier_queue_are_ignored(tmp_path: Path) -> None:
    file = jobs(tmp_path, "last; logs/first.rc; cat made\nfirst; ; echo new > made")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "first.rc").write_text("0")
    (tmp_path / "made").write_text("old\n")
    job_queue.run(file, tmp_path, 2)
    assert (tmp_path / "logs" / "last.log").read_text() == "new\n"


def test_at_most_the_allowed_number_of_jobs_run_at_once(tmp_path: Path) -> None:
    hold = "mkdir lock && rmdir lock"  # mkdir fails where another job holds the lock
    queue, listed = job_queue.Queue(tmp_path, 1), []
    wanted = job_queue.parse_jobs("\n".join(f"{name}; ; {hold}" for name in "abc"))
    while queue.update(wanted):
        listed.append(set(queue.running))
    assert {len(names) for names in listed} == {1}
    assert queue.ended == {"a": 0, "b": 0, "c": 0}


def waiting_job(folder: Path, command: str = "") -> Path:
    """A job that signals through a named pipe that it runs, and then waits for a pipe nobody writes to."""
    for name in ("started", "never"):
        os.mkfifo(folder / name)
    return jobs(folder, f"waits; ; {command} echo up > started; cat < never\nlater; logs/waits.rc; true")


def stop_when_started(folder: Path) -> "subprocess.Popen[bytes]":
    """A process that creates the file `stop` as soon as the job runs."""
    return subprocess.Popen(["bash", "-c", "cat started > heard; touch stop"], cwd=folder)


def test_stop_file_ends_running_jobs(tmp_path: Path) -> None:
    file = waiting_job(tmp_path)
    stopper = stop_when_started(tmp_path)
    assert job_queue.run(file, tmp_path, 2) == {}  # `waits` was ended, `later` never started
    assert stopper.wait() == 0
    assert (tmp_path / "heard").read_text() == "up\n"


def test_job_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    file = waiting_job(tmp_path, "trap '' TERM;")
    stopper = stop_when_started(tmp_path)
    assert job_queue.run(file, tmp_path, 2, grace=0.1) == {}
    assert stopper.wait() == 0


def test_job_that_ignores_sigint_gets_sigterm(tmp_path: Path) -> None:
    file = waiting_job(tmp_path, "trap '' INT; trap 'echo TERM > received; exit' TERM;")
    stopper = stop_when_started(tmp_path)
    assert job_queue.run(file, tmp_path, 2) == {}
    assert stopper.wait() == 0
    assert (tmp_path / "received").read_text() == "TERM\n"


def test_sigterm_to_the_queue_ends_its_jobs(tmp_path: Path) -> None:
    file = waiting_job(tmp_path, "echo $$ > pid;")
    queue = subprocess.Popen(
        [sys.executable, "-m", "tools.job_queue", str(file), str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    (tmp_path / "started").read_text()  # blocks until the job runs
    queue.send_signal(signal.SIGTERM)
    assert queue.wait() == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize("line", ["alone", "a; b", "; ; echo", "a; ;"])
def test_incomplete_line_is_an_error(line: str) -> None:
    with pytest.raises(InputError, match="name; needs; command"):
        job_queue.parse_jobs(line)


def test_the_planned_runs_have_valid_settings():
    planned = job_queue.parse_jobs((ROOT / "docs" / "lab" / "next-runs.txt").read_text("utf-8"))
    assert planned
    for job in planned:
        words = shlex.split(job.command)
        modules = [words[i + 1] for i, word in enumerate(words) if word == "-m" and "." in words[i + 1]]
        assert all(find_spec(module) for module in modules)
        if "sgpa" not in words:
            assert modules or "pytest" in words
            continue
        words = words[words.index("sgpa") :]
        settings = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
        recipe = override(RECIPES[words[2]], settings)
        option = {"train": "--method", "benchmark": "--methods"}[words[1]]
        assert set(words[words.index(option) + 1].split(",")) <= set(recipe.methods)
