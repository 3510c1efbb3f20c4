"""Runs record the machine, the date and the versions they were made with."""

import subprocess

from sgpa.core import provenance
from sgpa.core.files import read_json, write_json
from sgpa.core.provenance import FILE, of_all


def folder_with(folder, **facts):
    write_json(folder / FILE, {"versions": {"torch": "2"}, "hardware": "a", "commit": "c"} | facts)
    return folder


def test_a_run_records_this_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SGPA_COMMIT", "abc")
    provenance.record(tmp_path)
    assert read_json(tmp_path / FILE, dict).keys() == provenance.provenance().keys()
    assert of_all([tmp_path])["commit"] == "abc"


def test_facts_that_differ_between_folders_become_a_list(tmp_path):
    one = folder_with(tmp_path / "1", date="2026-01-02 10:00 UTC")
    two = folder_with(tmp_path / "2", date="2026-01-03 09:00 UTC", commit="d")
    three = folder_with(tmp_path / "3", date="2026-01-01 11:00 UTC")
    facts = of_all([one, two, three, one, tmp_path / "nothing"])
    assert facts == {
        "versions": {"torch": "2"},
        "hardware": "a",
        "commit": ["c", "d"],
        "date": "2026-01-03 09:00 UTC",
    }
    assert of_all([tmp_path / "nothing"]) == {}


def test_a_package_below_a_repository_of_others_has_no_commit(tmp_path, monkeypatch):
    monkeypatch.delenv("SGPA_COMMIT", raising=False)
    installed = tmp_path / ".venv" / "provenance.py"
    installed.parent.mkdir()
    installed.write_text("")
    for command in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "a"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(provenance, "__file__", str(installed))
    assert provenance.provenance()["commit"] == "unknown"
