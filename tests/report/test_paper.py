"""Published numbers beside ours, and ranks computed from published numbers."""

import csv
from importlib.resources import files

import pytest

from sgpa.report import aggregate, evaluation_table, to_html, to_markdown
from sgpa.report.figures.style import looks
from sgpa.report.paper import STANDS_FOR, paper_shift, published, published_cells
from sgpa.report.ranking import rank_table
from sgpa.report.sections.blocks import Material, notes
from sgpa.report.tables import Column
from support.fake_results import record

ROWS = list(csv.DictReader((files("sgpa.report") / "paper_results.csv").read_text("utf-8").splitlines()))
CIFAR = {"dataset": "cifar10", "attention": "kernel"}


def test_every_published_value_is_matched() -> None:
    plain = [r for r in ROWS if r["evaluation"] in ("in-distribution", "robustness", "ood-detection")]
    for row in plain:
        ours = [
            record(row["method"], row["metric"], 1.0, **{k: row[k] for k in (*CIFAR, "evaluation", "shift")})
        ]
        task = (row["dataset"], "" if row["augmentation"] == "none" else row["augmentation"])
        (published,) = published_cells(aggregate(ours), task).values()
        assert published.mean == float(row["mean"])


def test_forms_of_sgpa_are_variants() -> None:
    for name, accuracy in (("standard", 0.6435), ("Cheng-Boots", 0.7513), ("orthogonal", 0.7787)):
        cells = aggregate([record(f"sgpa:{name}", "accuracy", 0.8, **CIFAR)])
        (published,) = published_cells(cells, ("cifar10", "")).values()
        assert published.mean == accuracy


def test_shifts_are_matched_with_published_ones() -> None:
    assert paper_shift("cifar10-c-regenerated:3") == "cifar10-c:3"
    assert paper_shift("mini_imagenet") == "miniimagenet"
    assert paper_shift("cola-ood") == "cola-ood"
    printed = {row["shift"].partition(":")[0] for row in ROWS}
    assert set(STANDS_FOR.values()) <= printed


def test_tables_show_published_values_below_ours() -> None:
    where = {"evaluation": "robustness", "shift": "cifar10-c-regenerated:5", **CIFAR}
    records = [record("sgpa", "nll", 2.0, seed, **where) for seed in range(3)]
    records += [record("mine", "nll", 1.9, **where), record("sgpa", "brier", 0.5, **where)]
    cells = aggregate(records)
    material = Material(("cifar10", ""), cells, [], {}, looks(row for row, _ in cells))
    table = material.annotated(evaluation_table(cells, "robustness"))
    lines = to_markdown(table).splitlines()
    assert [line.split("|")[1:3] for line in lines[2:]] == [
        [" SGPA ", " 2.000 ± 0.000 "],
        [" *paper* ", " 2.381 ± 0.059 "],
        [" mine ", " **1.900** "],
    ]
    assert '<span class="paper">paper 2.381</span>' in to_html(table)
    assert to_html(table).count("paper 2.381") == 1
    assert "Regenerated corruptions are compared with the official files." in notes(table)


def test_aupr_is_compared_at_the_papers_share() -> None:
    where = {"evaluation": "ood-detection", "shift": "mini_imagenet", **CIFAR}
    plain = Column("ood-detection", "mini_imagenet", "aupr")
    shared = Column("ood-detection", "mini_imagenet", "aupr_paper_share")
    alone = published_cells(aggregate([record("sgpa", "aupr", 0.9, **where)]), ("cifar10", ""))
    assert [column for _, column in alone] == [plain]
    both = [record("sgpa", name, 0.9, **where) for name in ("aupr", "aupr_paper_share")]
    published = published_cells(aggregate(both), ("cifar10", ""))
    assert [column for _, column in published] == [shared]
    assert published[("kernel", "sgpa"), shared].mean == 0.9382


def test_mce_is_compared_with_that_of_all_classes() -> None:
    both = aggregate([record("sgpa", name, 0.05, **CIFAR) for name in ("mce", "mce_all_classes")])
    published = published_cells(both, ("cifar10", ""))
    assert {column.metric: value.mean for (_, column), value in published.items()} == {
        "mce_all_classes": 0.0825
    }


def test_misprints_are_doubtful_and_ensembles_have_no_error() -> None:
    assert published()[("zinc", ""), "in-distribution", "", "kernel", "mle", "nll"].doubtful
    assert not published()[("zinc", ""), "in-distribution", "", "kernel", "mle", "mae"].doubtful
    key = (("cifar10", ""), "ood-detection", "svhn", "kernel", "de", "auroc")
    assert published()[key].error is None  # printed as 0.0000


@pytest.mark.parametrize("augmentation", ["none", "three-augment"])
def test_ranks_of_published_numbers_equal_published_ranks(augmentation: str) -> None:
    records = [
        {**row, "value": float(row["mean"]), "seed": 0}
        for row in ROWS
        if row["evaluation"] == "ood-detection"
        and row["augmentation"] == augmentation
        and row["attention"] == "kernel"
    ]
    table = rank_table(records)
    assert table is not None
    assert [column.label for column in table.columns] == ["AUROC (6)", "AUPR (6)"]
    for row in ROWS:
        if row["evaluation"] == "rank" and row["augmentation"] == augmentation:
            name = row["metric"].removeprefix("rank-")
            cell = table.cells[("kernel", row["method"]), Column("rank", f"ood-detection:{name}", "rank")]
            assert cell.mean == pytest.approx(float(row["mean"]), abs=5.1e-5)
