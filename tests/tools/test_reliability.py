"""The page about reliability shows what was measured."""

import csv

import pytest

from tools import reliability


def test_the_page_shows_the_measurements():
    text = reliability.PAGE.read_text("utf-8")
    assert reliability.written(text) == text
    assert reliability.table() in text


def test_every_check_is_a_command_of_this_repository():
    for command in reliability.CHECKS.values():
        python, option, module, *_ = command.split()
        assert (python, option) == ("python", "-m")
        path = reliability.ROOT / module.replace(".", "/")
        assert module == "pytest" or path.with_suffix(".py").exists() or (path / "__main__.py").exists()


def test_an_outcome_is_kept_once(tmp_path, monkeypatch):
    monkeypatch.setattr(reliability, "MEASURED", tmp_path / "measured.csv")
    reliability.keep("soak", "python -m tests.soak", "first", "a")
    reliability.keep("api", "python -m tests.fuzz api", "fine", "a")
    reliability.keep("soak", "python -m tests.soak", "second", "b")
    with (tmp_path / "measured.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["check"], row["outcome"]) for row in rows] == [("api", "fine"), ("soak", "second")]


def test_measurements_name_known_checks():
    assert set(reliability.measured()) <= set(reliability.CHECKS)


@pytest.mark.parametrize("check", ["numerics"])
def test_a_check_returns_its_last_line(check, monkeypatch):
    monkeypatch.setitem(reliability.CHECKS, check, "python -m tests.numerics --count 2")
    assert reliability.run(check).startswith("2 layers: 0 wrong")
