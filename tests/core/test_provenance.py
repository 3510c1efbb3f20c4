"""Runs record where, when and with what they were made."""

from sgpa.core import provenance
from sgpa.core.files import read_json, write_json
from sgpa.core.provenance import FILE, of_all


def made(folder, **facts):
    write_json(folder / FILE, {"versions": {"torch": "2"}, "hardware": "a", "commit": "c"} | facts)
    return folder


def test_what_is_recorded_is_what_is_here(tmp_path, monkeypatch):
    monkeypatch.setenv("SGPA_COMMIT", "abc")
    provenance.record(tmp_path)
    assert read_json(tmp_path / FILE).keys() == provenance.provenance().keys()
    assert of_all([tmp_path])["commit"] == "abc"


def test_folders_that_agree_give_one_value_and_others_a_list(tmp_path):
    one = made(tmp_path / "1", date="2026-01-02 10:00 UTC")
    two = made(tmp_path / "2", date="2026-01-03 09:00 UTC", commit="d")
    three = made(tmp_path / "3", date="2026-01-01 11:00 UTC")
    found = of_all([one, two, three, one, tmp_path / "nothing"])
    assert found == {
        "versions": {"torch": "2"},
        "hardware": "a",
        "commit": ["c", "d"],
        "date": "2026-01-03 09:00 UTC",
    }
    assert of_all([tmp_path / "nothing"]) == {}
