"""The page that compares every published value with ours."""

from collections import Counter

import pytest
from tools.coverage import (
    BETTER,
    LEVEL,
    MISSING,
    PAGE,
    RESULTS,
    TIMED,
    VERDICTS,
    WORSE,
    compare,
    count_line,
    line,
    our_cells,
    page,
    published_rows,
    shape_of,
    verdict,
)
from tools.readme_tables import ROOT

from sgpa.report.tables import Cell


def row(metric="nll", mean="0.700", error="0.010", method="sgpa", **changed):
    given = {"table": "t", "dataset": "cifar10", "augmentation": "none", "evaluation": "in-distribution"}
    value = {"metric": metric, "mean": mean, "error": error, "method": method}
    return given | {"shift": "", "attention": "kernel"} | value | changed


@pytest.fixture(scope="module")
def comparisons():
    return compare(published_rows(), our_cells(RESULTS / "results.csv"))


def test_every_published_value_has_one_line(comparisons):
    text = page(comparisons)
    assert len(comparisons) == len(published_rows()) == 1270
    assert sum(text.splitlines().count(each) for each in {line(c) for c in comparisons}) == 1270


def test_the_page_is_up_to_date(comparisons):
    assert PAGE.read_text(encoding="utf-8") == page(comparisons), "run python -m tools.coverage"


def test_the_readme_has_the_counts(comparisons):
    counts = Counter(each.verdict for each in comparisons)
    beside = len(comparisons) - counts["missing"]
    text = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert (
        f"Of the {len(comparisons):,} values that the paper prints, {beside:,} have ours beside them" in text
    )
    assert ", ".join(f"{counts[name]:,} {name}" for name in ("better", "level", "worse")) in text


def test_every_missing_value_has_a_reason_and_no_other_has_one(comparisons):
    for c in comparisons:
        assert (c.verdict == MISSING) == (c.ours is None) == bool(c.reason)
        assert c.verdict in VERDICTS


@pytest.mark.parametrize(
    ("printed", "ours", "expected"),
    [
        (row(), Cell(0.6, 0.01, 5), BETTER),
        (row(), Cell(0.8, 0.01, 5), WORSE),
        (row(), Cell(0.68, 0.01, 5), LEVEL),  # 2 sqrt(0.01² + 0.01²) = 0.028
        (row(), Cell(0.67, 0.01, 5), BETTER),
        (row(), Cell(0.68, None, 1), LEVEL),  # the paper's error alone
        (row(), Cell(0.679, None, 1), BETTER),
        (row("accuracy", "0.78"), Cell(0.82, 0.001, 5), BETTER),
        (row("accuracy", "0.78"), Cell(0.70, 0.001, 5), WORSE),
        (row("ece", "0.0181", "", "sgpae"), Cell(0.0184, None, 1), LEVEL),  # both are printed as 0.018
        (row("ece", "0.018", "0.5", "sgpae"), Cell(0.017, None, 1), BETTER),  # no error is known of ensembles
    ],
)
def test_verdicts(printed, ours, expected):
    assert verdict(printed, ours) == expected


def test_a_value_is_compared_with_the_same_quantity_under_our_name(tmp_path):
    file = tmp_path / "results.csv"
    file.write_text(
        "dataset,augmentation,evaluation,shift,attention,method,metric,value,seed,run\n"
        "cifar10,none,in-distribution,,kernel,sgpa,mce,0.3,0,a\n"
        "cifar10,none,in-distribution,,kernel,sgpa,mce_all_classes,0.04,0,a\n"
        "cifar10,none,in-distribution,,kernel,sgpa,mce_all_classes,0.06,1,a\n"
        "cifar10,none,in-distribution,,kernel,sgpa:Cheng-Boots,nll,0.6,0,b\n"
        "cifar10,none,robustness,cifar10-c-regenerated:5,kernel,sgpa,nll,1.5,0,a\n"
    )
    rows = [
        row("mce", "0.08"),
        row("nll", method="decoupled-sgpa-cheng-boots", attention="", evaluation="ablation"),
        row("nll", "2.4", evaluation="robustness", shift="cifar10-c:5"),
        row("nll", attention="sdp"),
    ]
    results = compare(rows, our_cells(file))
    assert [c.ours.mean if c.ours else None for c in results] == [0.05, 0.6, 1.5, None]
    assert results[0].ours.n == 2
    assert results[3].reason == "softmax attention not run yet"
    assert count_line(results) == (
        "Of 4 published values 3 stand beside ours: 3 better, 0 level, 0 worse, 1 missing. Of the 4 values "
        "of SGPA and its ensemble: 3 better, 0 level, 0 worse, 1 missing; 100 % of those compared are "
        "better or level. Of the 3 better ones 2 rest on one seed of ours, 1 on 2."
    )


def test_times_stand_beside_the_printed_ones_without_a_verdict():
    printed = {"evaluation": "time", "attention": "", "augmentation": ""}
    rows = [
        row("seconds", mean="138.6", error="", **printed | {"table": "time-training", "shift": "kg:32"}),
        row(
            "seconds",
            mean="0.23",
            error="",
            method="mcd",
            **printed | {"table": "time-inference", "shift": "kg:16"},
        ),
        row("seconds", mean="0.8", error="", **printed | {"table": "time-inference", "shift": "kg:16"}),
        row("seconds", mean="2.4", error="", **printed | {"table": "time-inference", "dataset": "cola"}),
    ]
    results = compare(rows, {})
    assert [c.verdict for c in results] == [TIMED, TIMED, MISSING, MISSING]
    assert 0.3 < results[0].ours.mean < 1.5  # of an epoch
    assert "2 on other hardware, 2 missing" in count_line(results)


def test_metrics_of_the_paper_have_a_better_direction():
    assert all(shape_of(r["metric"]).higher_is_better is not None for r in published_rows())
    assert shape_of("rank-auroc").name == "Average rank, AUROC"
