"""Commands that wait for one another."""

import threading
import time
from pathlib import Path

import pytest

from sgpa.core.errors import InputError
from tools import job_queue


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_queue, "PAUSE", 0.02)


def jobs(folder: Path, text: str) -> Path:
    file = folder / "jobs.txt"
    file.write_text(text)
    return file


def test_a_command_starts_when_what_it_needs_is_there(tmp_path: Path) -> None:
    last, first = "last; logs/first.rc, made; cat made", "first; ; sleep 0.1; echo one > made; exit 3"
    file = jobs(tmp_path, f"# second first\n{last}\n{first}\n\nnever; nothing; echo no\n")
    assert job_queue.run(file, tmp_path, 2) == {"first": 3, "last": 0}
    assert (tmp_path / "logs" / "last.log").read_text() == "one\n"
    assert (tmp_path / "logs" / "first.rc").read_text() == "3"
    (tmp_path / "made").write_text("old\n")
    job_queue.run(file, tmp_path, 2)  # an end that was told before tells nothing now
    assert (tmp_path / "logs" / "last.log").read_text() == "one\n"


def test_no_more_than_allowed_run_at_once(tmp_path: Path) -> None:
    one = "mkdir lock && sleep 0.1 && rmdir lock"
    file = jobs(tmp_path, "\n".join(f"{name}; ; {one}" for name in "abc"))
    assert job_queue.run(file, tmp_path, 1) == {"a": 0, "b": 0, "c": 0}


def test_a_file_ends_it_all(tmp_path: Path) -> None:
    file = jobs(
        tmp_path, "long; ; trap 'exit 0' INT; touch begun; sleep 30 & wait\nlater; logs/long.rc; true"
    )

    def end() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        (tmp_path / "stop").touch()

    threading.Thread(target=end).start()
    started = time.monotonic()
    assert "later" not in job_queue.run(file, tmp_path, 2)
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("line", ["alone", "a; b", "; ; echo", "a; ;"])
def test_a_line_that_says_too_little_is_named(line: str) -> None:
    with pytest.raises(InputError, match="name; needs; command"):
        job_queue.lines(line)
