"""Results that are kept can be read again, and added to."""

from pathlib import Path

import pytest
from tools.archive_run import found, keep
from tools.readme_tables import ROOT

from sgpa.report import merge
from support.fake_results import synthetic


def numbers(results: dict) -> list:
    names = ("method", "evaluation", "shift", "metric", "seed", "value")
    return sorted(tuple(record[name] for name in names) for record in results["records"] if record["value"])


@pytest.mark.slow
def test_what_is_kept_is_what_was_found(tmp_path: Path) -> None:
    mle, sgpa = synthetic(("mle",)), synthetic(("sgpa",))
    keep(mle, tmp_path / "kept")
    again = found(tmp_path / "kept")
    assert numbers(again) == numbers(mle)
    assert again["curves"] == mle["curves"]
    both = merge([again, sgpa])
    keep(both, tmp_path / "kept")
    assert numbers(found(tmp_path / "kept")) == sorted(numbers(mle) + numbers(sgpa))
    page = (tmp_path / "kept" / "README.md").read_text()
    assert "| SGPA |" in page
    assert "figures/training.svg" in page
    assert (tmp_path / "kept" / "figures" / "training.svg").exists()


@pytest.mark.parametrize("run", sorted(path.parent for path in (ROOT / "docs").glob("results/*/curves.json")))
def test_kept_runs_are_whole(run: Path) -> None:
    results = found(run)
    assert results["title"]
    methods = {record["method"] for record in results["records"]}
    assert methods == {curve["method"] for curve in results["curves"]}
