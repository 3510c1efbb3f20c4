"""Archived results can be read again and merged with other runs."""

from pathlib import Path

import pytest
from tools.archive_run import archive, read_results, without
from tools.readme_tables import ROOT

from sgpa.report import merge
from support.fake_results import synthetic


def synthetic_run(*methods: str) -> dict:
    """Invented results with two kinds of curves; the others take seconds to draw."""
    results = synthetic(methods)
    return results | {"curves": [c for c in results["curves"] if c["kind"] in ("training", "risk-coverage")]}


def numbers(results: dict) -> list:
    names = ("method", "evaluation", "shift", "metric", "seed", "value")
    return sorted(tuple(record[name] for name in names) for record in results["records"] if record["value"])


@pytest.mark.slow
def test_archived_results_equal_the_results_of_the_run(tmp_path: Path) -> None:
    mle, sgpa = synthetic_run("mle"), synthetic_run("sgpa")
    archive(mle, tmp_path / "kept")
    again = read_results(tmp_path / "kept")
    assert numbers(again) == numbers(mle)
    assert again["curves"] == mle["curves"]
    both = merge([again, sgpa])
    archive(both, tmp_path / "kept")
    assert numbers(read_results(tmp_path / "kept")) == sorted(numbers(mle) + numbers(sgpa))
    page = (tmp_path / "kept" / "README.md").read_text()
    assert "| SGPA |" in page
    assert "figures/training.svg" in page
    assert (tmp_path / "kept" / "figures" / "training.svg").exists()


@pytest.mark.parametrize("run", sorted(path.parent for path in (ROOT / "docs").glob("results/*/curves.json")))
def test_archived_runs_are_complete(run: Path) -> None:
    results = read_results(run)
    assert results["title"]
    methods = {record["method"] for record in results["records"]}
    curves = {curve["method"] for curve in results["curves"]}
    assert curves
    assert curves <= methods  # numbers that were archived before curves were kept have none


def test_methods_of_an_archive_without_curves_are_replaced(tmp_path: Path) -> None:
    old, new = synthetic_run("mle", "sgpa"), synthetic_run("sgpa")
    archive(old, tmp_path / "kept")
    (tmp_path / "kept" / "curves.json").unlink()
    kept = without(read_results(tmp_path / "kept"), ["sgpa"])
    assert numbers(kept) == numbers(synthetic(("mle",)))
    assert {curve["method"] for curve in merge([kept, new])["curves"]} == {"sgpa"}


def test_one_attention_of_a_method_is_replaced() -> None:
    old = synthetic_run("mle", "sgpa")
    for record in old["records"][:3]:
        record["attention"] = "sdp"
    kept = without(old, ["kernel-mle"])
    assert [r for r in kept["records"] if r["method"] == "mle"] == [
        r for r in old["records"][:3] if r["method"] == "mle"
    ]
    assert {t["method"] for t in kept["run"]["timings"]} <= {"sgpa"}
