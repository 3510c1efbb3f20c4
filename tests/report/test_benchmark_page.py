"""The page of a whole benchmark: nine methods, two attentions, four tasks, five seeds."""

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

pytestmark = pytest.mark.xdist_group("page")  # all in one process of the tests: they share a page
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
    return merge(cells())


@pytest.fixture(scope="module")
def page(results: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(results, tmp_path_factory.mktemp("benchmark"))


@pytest.mark.slow
def test_every_figure_is_there_and_none_per_corruption_type(page: Path) -> None:
    stems = {path.stem for path in (page.parent / "figures").glob("*.svg")}
    assert {stem.removeprefix("cifar10-") for stem in stems if stem.startswith("cifar10-")} == CIFAR
    assert {"ranks", "imdb-metrics", "cola-robustness-cola-ood", "zinc-detection", "zinc-cost"} <= stems
    assert "zinc-reliability" not in stems
    assert stems == {path.stem for path in (page.parent / "figures").glob("*.pdf")}
    text = page.read_text("utf-8")
    assert text.count("<figure>") == text.count('role="img"') == len(stems)
    assert page.stat().st_size < 8e6


@pytest.mark.slow
def test_contents_lead_everywhere_and_nothing_leads_outside(page: Path) -> None:
    text = page.read_text("utf-8")
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    targets = re.findall(r'href="#([^"]+)"', text) + re.findall(r"url\(#([^)]+)\)", text)
    assert set(targets) <= set(ids)
    assert {"overview", "cifar10", "cifar10-robustness", "imdb-calibration", "zinc-cost"} <= set(targets)
    assert not re.search(r"url\((?!#)|@import|<script|<link", text)
    assert not re.search(r"https?://", re.sub(r'xmlns(:\w+)?="[^"]*"', "", text))


@pytest.mark.slow
def test_the_paper_stands_beside(page: Path) -> None:
    text = page.read_text("utf-8")
    for value in ("paper 0.697", "paper 2.381", "paper 27.24", "paper 0.434", "paper 0.320?"):
        assert value in text
    assert "paired t-test over the n = 5 shared seeds" in text


@pytest.mark.slow
def test_numbers_lie_beside_the_page(page: Path, results: dict[str, Any]) -> None:
    names = {path.name for path in (page.parent / "tables").iterdir()}
    assert names == {
        *(f"{name}-in-distribution.md" for name in ("cifar10", "imdb", "cola", "zinc")),
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
def test_browser_shows_it_all(page: Path, tmp_path: Path, width: int) -> None:
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


def test_a_method_that_lacks_the_columns_is_left_out_of_the_ranks() -> None:
    records = small("mle", "ts", "sgpa")["records"] + small("mcd", datasets=("imdb",))["records"]
    table = rank_table(records)
    assert table is not None
    assert {method for _, method in table.rows} == {"mle", "ts", "sgpa"}


def test_who_is_best_where() -> None:
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
    said = overall(tasks)
    assert said.startswith("3 methods, 2 tasks, ")
    assert "with the best other single model, SGPA is better in" in said
    assert "a single run is lent the mean error of the others" in said


def test_a_tie_at_the_top_is_called_a_tie() -> None:
    made = small("mle", "sgpa")
    twin = [r | {"method": "mine"} for r in made["records"] if r["method"] == "sgpa"]
    tasks = {("imdb", ""): aggregate(made["records"] + twin, ("imdb", ""))}
    assert best_where(tasks).rows[0][2] == "level: SGPA and mine"


def test_attentions_are_shown_apart_only_where_each_has_several() -> None:
    nine = [("kernel", method) for method in LEVELS]
    assert list(by_attention([*nine, ("sdp", "mle")])) == [""]
    assert list(by_attention([*nine, *(("sdp", method) for method in LEVELS)])) == ["sdp", "kernel"]


def test_augmentation_makes_a_task_of_its_own(tmp_path: Path) -> None:
    made = small("mle", "sgpa", datasets=("zinc",))
    other = [r | {"augmentation": "three-augment"} for r in made["records"]]
    plain = [r | {"augmentation": "none"} for r in made["records"]]
    made |= {"records": plain + other, "curves": [], "run": {}}
    text = write_report(made, tmp_path).read_text("utf-8")
    assert '<h2 class="part" id="zinc">ZINC</h2>' in text
    assert '<h2 class="part" id="zinc-three-augment">ZINC, 3-Augment</h2>' in text
    assert task_name(("cifar100", "")) == "CIFAR-100"
    assert "Calibration" not in text  # a number has no confidence to come true


def test_methods_nobody_knows_are_welcome(tmp_path: Path) -> None:
    made = small("mle", "mine", datasets=("imdb",))
    write_report(made, tmp_path)
    assert "| mine |" in (tmp_path / "report.md").read_text("utf-8")
    assert (tmp_path / "figures" / "cost.svg").exists()
