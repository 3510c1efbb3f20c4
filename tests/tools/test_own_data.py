"""The page about few rows says what was measured, and which method is better."""

import json

import pytest
from tools.own_data import page


def line(kind, seed, ours, forest):
    scores = {"sgpa.fit": [*ours, 0.02, 90.0], "random forest": [*forest, 0.1, 3.0]}
    columns = ["accuracy ↑", "NLL ↓", "ECE ↓"]
    where = {"commit": "abc", "hardware": "x86_64 CPU, 2 cores", "date": "2026-11-18"}
    return {"kind": kind, "rows": 300, "seed": seed, "columns": columns, "scores": scores} | where


def test_the_page_has_means_errors_targets_and_words(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    measured = [
        line("digits", 1, (0.94, 0.2), (0.95, 0.5)),
        line("digits", 2, (0.96, 0.1), (0.97, 0.7)),
        line("images", 1, (0.7, 0.6), (0.6, 0.8)) | {"hardware": "a GPU"},
    ]
    (tmp_path / "measurements.jsonl").write_text("\n".join(json.dumps(m) for m in measured), encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["page", str(tmp_path)])
    page.main()
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| sgpa.fit | 2 | 0.950 ± 0.010 | 0.150 ± 0.050 | 0.020 ± 0.000 | 90 ± 0 |" in text
    assert "| *target* | | 0.945 | 0.18 |  |  |" in text
    assert (
        "accuracy: random forest is better than `sgpa.fit` by 0.010 ± 0.000; the target 0.945 is met" in text
    )
    assert "NLL: `sgpa.fit` is better than random forest by 0.450 ± 0.150; the target 0.18 is met" in text
    assert "| sgpa.fit | 1 | 0.700 | 0.600 | 0.020 |  |" in text  # seconds of a GPU are not comparable
    assert "accuracy: `sgpa.fit` is better than random forest by 0.100 (one seed)." in text
    assert "Seeds 1, 2; commit abc; x86_64 CPU, 2 cores; 2026-11-18." in text
    assert text.index("## Digits") < text.index("## Images")


def test_a_missed_target_is_named():
    values = {"sgpa.fit": [{1: 0.9}, {1: 5.0}], "forest": [{1: 0.8}, {1: 1.0}]}
    words = page.in_words(values, ["accuracy ↑", "CPU-s"], {"accuracy ↑": 0.945})
    assert words == (
        "- accuracy: `sgpa.fit` is better than forest by 0.100 (one seed); the target 0.945 is **not met**."
    )


def test_a_difference_within_two_standard_errors_is_not_called_better():
    values = {
        "sgpa.fit": [{1: 0.90, 2: 0.92, 3: 0.80}],
        "SGPA": [{1: 0.90, 2: 0.92, 3: 0.80}],  # the same model
        "forest": [{2: 0.90, 3: 0.85, 1: 0.80}],  # seeds in another order
    }
    words = page.in_words(values, ["accuracy ↑"], {})
    assert words == "- accuracy: no clear difference to forest (0.023 ± 0.043)."
    values["forest"] = [{4: 0.5}]
    assert (
        page.in_words(values, ["accuracy ↑"], {})
        == "- accuracy: `sgpa.fit` and forest have no seed in common."
    )


def test_targets_of_a_method_that_was_not_measured_are_left_out():
    measured = [line("texts", 1, (0.9, 0.3), (0.8, 0.4))]
    assert "target" in page.section(measured, 300, {"NLL ↓": 0.2}, first="random forest")
    assert "target" not in page.section(measured, 300, {"NLL ↓": 0.2}, first="MiniLM")


def test_the_page_is_up_to_date():
    lines = (page.FOLDER / "measurements.jsonl").read_text(encoding="utf-8").splitlines()
    made = page.page([json.loads(line) for line in lines])
    assert (page.FOLDER / "README.md").read_text(encoding="utf-8") == made, (
        "run python -m tools.own_data.page"
    )
