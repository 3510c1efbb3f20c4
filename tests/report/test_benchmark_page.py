"""The page of a benchmark: three tasks, five seeds, on CIFAR-10 three methods with two attentions."""

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from sgpa.report import aggregate, merge, write_report
from sgpa.report.names import by_attention, task_name
from sgpa.report.ranking import rank_table
from sgpa.report.sections.overview import best_where, overall
from support.browser import CHROMIUM, Browser
from support.fake_benchmark import LEVELS, cells

pytestmark = pytest.mark.xdist_group("page")  # in one process: all tests share a page
CIFAR = {
    "metrics",
    "reliability-sdp",
    "reliability-kernel",
    "reliability-cifar10-c-regenerated-sdp",
    "reliability-cifar10-c-regenerated-kernel",
    "risk-coverage",
    "robustness-cifar10-c-regenerated",
    "types-sdp",
    "types-kernel",
    "detection",
    *(
        f"entropy-{name}-{kind}"
        for name in ("cifar100", "svhn", "mini-imagenet")
        for kind in ("sdp", "kernel")
    ),
    "cost",
    "training",
    *(f"layers-{kind}-{method}" for kind in ("sdp", "kernel") for method in ("mle", "sgpa")),
}


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    others = cells(("cola", "zinc"), ("mle", "ts", "sgpa", "sgpae"), attentions=("kernel",))
    return merge([*cells(("cifar10",), ("mle", "sgpa", "sgpae")), *others])


@pytest.fixture(scope="module")
def page(results: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(results, tmp_path_factory.mktemp("benchmark"), pdf=False)


@pytest.mark.slow
def test_figures_of_all_sections_and_none_per_corruption_type(page: Path) -> None:
    stems = {path.stem for path in (page.parent / "figures").glob("*.svg")}
    assert {stem.removeprefix("cifar10-") for stem in stems if stem.startswith("cifar10-")} == CIFAR
    assert {"ranks", "cola-metrics", "cola-robustness-cola-ood", "zinc-detection", "zinc-cost"} <= stems
    assert "zinc-reliability" not in stems
    text = page.read_text("utf-8")
    assert text.count("<figure>") == text.count('role="img"') == len(stems)
    assert page.stat().st_size < 8e6


@pytest.mark.slow
def test_links_resolve_and_nothing_is_external(page: Path) -> None:
    text = page.read_text("utf-8")
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    targets = re.findall(r'href="#([^"]+)"', text) + re.findall(r"url\(#([^)]+)\)", text)
    assert set(targets) <= set(ids)
    assert {"overview", "cifar10", "cifar10-robustness", "cola-calibration", "zinc-cost"} <= set(targets)
    assert not re.search(r"url\((?!#)|@import|<script|<link", text)
    assert not re.search(r"https?://", re.sub(r'xmlns(:\w+)?="[^"]*"', "", text))


@pytest.mark.slow
def test_published_values_are_shown(page: Path) -> None:
    text = page.read_text("utf-8")
    for value in ("paper 0.697", "paper 2.381", "paper 27.24", "paper 0.434", "paper 1.098?"):
        assert value in text
    assert "paired t-test over the n = 5 shared seeds" in text


@pytest.mark.slow
def test_tables_and_records_are_saved(page: Path, results: dict[str, Any]) -> None:
    names = {path.name for path in (page.parent / "tables").iterdir()}
    assert names == {
        *(f"{name}-in-distribution.md" for name in ("cifar10", "cola", "zinc")),
        *(f"{name}-robustness.md" for name in ("cifar10", "cola")),
        *(f"{name}-ood-detection.md" for name in ("cifar10", "zinc")),
    }
    table = (page.parent / "tables" / "cifar10-robustness.md").read_text("utf-8")
    assert "## CIFAR-10-C (regenerated): NLL (nats) ↓" in table
    lines = [line for line in table.splitlines() if line.startswith(("| SGPA (kernel)", "| *paper*"))]
    assert len(lines[0].split("±")) == 6  # five intensities
    assert "fog" not in table
    with (page.parent / "results.csv").open(encoding="utf-8") as file:
        saved = list(csv.DictReader(file))
    assert len(saved) == len(results["records"])
    assert float(saved[0]["value"]) == results["records"][0]["value"]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine to open the page with")
@pytest.mark.parametrize("width", [1280, 390])
def test_browser_shows_every_figure(page: Path, tmp_path: Path, width: int) -> None:
    with Browser(tmp_path / "profile") as browser:
        browser.open(page.as_uri(), width)
        browser.ask("document.querySelectorAll('details').forEach(one => one.open = true)")
        sizes = browser.ask(
            "[...document.querySelectorAll('figure svg')].map(one => one.getBoundingClientRect().width)"
        )
        assert len(sizes) == len(list((page.parent / "figures").glob("*.svg")))
        assert min(sizes) > 0.7 * min(width, 600)
        assert browser.ask("document.documentElement.scrollWidth") == width
        assert browser.complaints == []
        assert {url for url in browser.requests if not url.startswith("data:")} == {page.as_uri()}


def small(*methods: str, datasets: tuple[str, ...] = ("imdb", "cola"), seeds: int = 3) -> dict[str, Any]:
    return merge(cells(datasets, methods, tuple(range(seeds)), ("kernel",)))


def test_ranks_need_three_methods_and_two_columns() -> None:
    three = ("mle", "ts", "sgpa")
    table = rank_table(small(*three)["records"])
    assert table is not None
    assert {column.label for column in table.columns} == {"Accuracy (2)", "NLL (2)", "ECE (2)"}
    assert rank_table(small(*three[:2])["records"]) is None
    assert rank_table(small(*three, datasets=("imdb",))["records"]) is None


def test_methods_with_missing_columns_are_not_ranked() -> None:
    records = small("mle", "ts", "sgpa")["records"] + small("mcd", datasets=("imdb",))["records"]
    table = rank_table(records)
    assert table is not None
    assert {method for _, method in table.rows} == {"mle", "ts", "sgpa"}


def test_best_method_by_task_and_metric() -> None:
    made = small("mle", "sgpa", "sgpae")
    tasks = {task: aggregate(made["records"], task) for task in (("imdb", ""), ("cola", ""))}
    grid = best_where(tasks)
    assert grid.head == ("", "Accuracy, MCC, MAE or AUROC", "NLL", "ECE")
    assert [row[0] for row in grid.rows] == [
        "IMDB",
        "Clean test set",
        "CoLA",
        "Clean test set",
        "Shift: CoLA out of domain",
    ]
    assert grid.rows[1][2] == "SGPA ensemble\nsingle model: SGPA"
    summary = overall(tasks)
    assert summary.startswith("3 methods, 2 tasks, ")
    assert "Against the best other single model SGPA is better in" in summary
    assert "a single run is given the mean error of the others" in summary


def test_equal_methods_are_both_best() -> None:
    made = small("mle", "sgpa")
    twin = [r | {"method": "mine"} for r in made["records"] if r["method"] == "sgpa"]
    tasks = {("imdb", ""): aggregate(made["records"] + twin, ("imdb", ""))}
    assert best_where(tasks).rows[0][2] == "no clear difference: SGPA and mine"


def test_attentions_are_separated_only_if_each_has_several_methods() -> None:
    nine = [("kernel", method) for method in LEVELS]
    assert list(by_attention([*nine, ("sdp", "mle")])) == [""]
    assert list(by_attention([*nine, *(("sdp", method) for method in LEVELS)])) == ["sdp", "kernel"]


def test_each_augmentation_is_a_task(tmp_path: Path) -> None:
    made = small("mle", "sgpa", datasets=("zinc",))
    other = [r | {"augmentation": "three-augment"} for r in made["records"]]
    plain = [r | {"augmentation": "none"} for r in made["records"]]
    made |= {"records": plain + other, "curves": [], "run": {}}
    text = write_report(made, tmp_path, pdf=False).read_text("utf-8")
    assert '<h2 class="part" id="zinc">ZINC</h2>' in text
    assert '<h2 class="part" id="zinc-three-augment">ZINC, 3-Augment</h2>' in text
    assert task_name(("cifar100", "")) == "CIFAR-100"
    assert "Calibration" not in text  # regression has no confidence


def test_unknown_methods_are_shown(tmp_path: Path) -> None:
    made = small("mle", "mine", datasets=("imdb",))
    write_report(made, tmp_path, pdf=False)
    assert "| mine |" in (tmp_path / "report.md").read_text("utf-8")
    assert (tmp_path / "figures" / "cost.svg").exists()
