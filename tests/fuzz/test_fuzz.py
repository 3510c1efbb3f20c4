"""A short part of `python -m tests.fuzz`, which has the same cases in any number."""

import random

import pytest
from tests.fuzz import api, cli, files
from tests.fuzz.guard import Accepted, judge, run

from sgpa.core.errors import InputError

KINDS = {
    "api": (api.Cases, range(250)),
    "files": (files.Cases, range(40)),
    "entries": (files.Entries, range(0, 90_000, 3_000)),
    "cli": (cli.Cases, range(30)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_cases_end_in_a_result_or_one_line(kind, tmp_path, monkeypatch):
    cases, numbers = KINDS[kind]
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert run(kind, cases(tmp_path).make, numbers, seed=0) == []


class TwoLines(InputError):
    """An error of the package that does not keep its promise."""

    def __str__(self):
        return "two\nlines"


def test_what_the_tool_reports():
    def raising(error):
        def call():
            raise error

        return call

    assert judge(0, "fine", lambda: None) is None
    assert judge(0, "refused", raising(InputError("x=1 (allowed: 2)"))) is None
    for error in (
        TwoLines(),
        TypeError("raw"),
        RecursionError(),
        Accepted("wrong"),
        OSError("no file"),
    ):
        assert judge(0, "bad", raising(error)) is not None


def test_a_hang_is_reported(monkeypatch):
    monkeypatch.setattr("tests.fuzz.guard.SECONDS", 0.05)

    def hang():
        while True:
            pass

    assert "longer than" in str(judge(0, "hang", hang))


def test_a_case_follows_from_its_number(tmp_path):
    cases = api.Cases(tmp_path)
    names = [cases.make(random.Random(f"api 0 {i}"))[0] for i in (5, 5, 6)]
    assert names[0] == names[1] != names[2]
