"""The tasks of the first hour are printed in the documentation, and the page names them."""

import pytest
from tools.first_hour import JOBS, PAGE, code_of, page, timed

from support.paths import ROOT


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.title)
def test_commands_and_code_are_printed_on_the_page(job):
    text = (ROOT / job.page).read_text(encoding="utf-8")
    assert all(command in text for command in job.commands)
    assert bool(job.commands) != bool(code_of(job).strip())


def test_the_page_has_every_task():
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"| {title} | " in text for title in ("Install", *(job.title for job in JOBS)))


def test_tasks_without_a_time_say_so():
    about = {"versions": {"python": "3.11", "torch": "2"}, "date": "d", "commit": "c", "hardware": "h"}
    text = page({"Add a kernel": {"clock": 2.4, "cpu": 1.6}}, about)
    assert "| 2 | 2 |" in text
    assert text.count("not measured") == len(JOBS)


def test_a_command_that_fails_is_an_error(tmp_path):
    with pytest.raises(SystemExit, match="Try: failed"):
        timed([["python3", "-c", "raise SystemExit(1)"]], tmp_path, "Try")
