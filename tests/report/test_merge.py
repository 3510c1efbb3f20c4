"""Joining the results of several runs, and results that cannot be joined."""

from pathlib import Path
from typing import Any

import pytest

from sgpa.core.errors import InputError
from sgpa.report import merge, write_report
from sgpa.report.provenance import command, facts
from support.fake_results import record


def run(method: str, seed: int = 0, dataset: str = "digits", **facts: Any) -> dict[str, Any]:
    who = {"dataset": dataset, "attention": "kernel", "method": method, "seed": seed}
    return {
        "schema": 1,
        "title": f"{method} alone",
        "summary": "",
        "records": [record(method, "nll", 0.5, seed, dataset=dataset)],
        "curves": [{"kind": "training", **who, "data": {"nll": [2.0, 1.0]}}],
        "run": {"command": f"sgpa run {method}", "commit": "0123abc", **facts},
    }


def test_records_curves_and_timings_are_joined() -> None:
    timing = {"attention": "kernel", "method": "mle", "seed": 0, "train_seconds": 2.0}
    merged = merge([run("mle", timings=[timing]), run("sgpa"), run("sgpa", 1)])
    assert [(r["method"], r["seed"]) for r in merged["records"]] == [("mle", 0), ("sgpa", 0), ("sgpa", 1)]
    assert len(merged["curves"]) == 3
    assert merged["run"]["timings"] == [{"dataset": "digits", "augmentation": "", **timing}]
    assert merged["title"] == "mle alone"
    assert merge([merged])["records"] == merged["records"]


def test_facts_of_a_merged_run_stay_one_list() -> None:
    first = merge([run("mle", commit="a"), run("ts", commit="b")])
    assert merge([first, run("sgpa", commit="c")])["run"]["commit"] == ["a", "b", "c"]
    assert merge([first, run("sgpa", commit="b")])["run"]["commit"] == ["a", "b"]


def test_equal_facts_appear_once() -> None:
    merged = merge([run("mle", seconds={"mle": 1.0}), run("sgpa", seconds={"sgpa": 2.0})])["run"]
    assert merged["commit"] == "0123abc"
    assert command(merged) == "sgpa run mle\nsgpa run sgpa"
    assert dict(facts(merged))["Time"] == "MLE 1.0 s; SGPA 2.0 s"
    twice = [run("mle", seed, seconds={"mle": 1.0 + seed}) for seed in (0, 1)]
    assert "seconds" not in merge(twice)["run"]


def test_different_evaluations_of_one_cell_are_joined() -> None:
    other = run("mle")
    other["records"] = [record("mle", "auroc", 0.9, evaluation="ood-detection", shift="svhn")]
    other["curves"] = []
    assert len(merge([run("mle"), other])["records"]) == 2


def test_variants_of_one_method_are_distinguished_by_name() -> None:
    timing = {"attention": "kernel", "method": "sgpa", "seed": 0, "train_seconds": 2.0}
    runs = [run("sgpa", timings=[timing], seconds={"sgpa": 2.0}), run("sgpa")]
    merged = merge(runs, ["standard", "16 keys"])
    assert [r["method"] for r in merged["records"]] == ["sgpa:standard", "sgpa:16 keys"]
    assert [c["method"] for c in merged["curves"]] == ["sgpa:standard", "sgpa:16 keys"]
    assert merged["run"]["timings"][0]["method"] == "sgpa:standard"
    assert merged["run"]["seconds"] == {"sgpa:standard": 2.0}
    assert runs[0]["records"][0]["method"] == "sgpa"
    for names in (["one"], ["twice", "twice"]):
        with pytest.raises(InputError, match="1 different names were given for 2 runs"):
            merge(runs, names)


def test_duplicate_cells_raise() -> None:
    with pytest.raises(
        InputError, match=r"results 1 and 3 both hold dataset digits.*method mle, seed 0.*nll"
    ):
        merge([run("mle"), run("sgpa"), run("mle")])
    none = run("mle")
    none["records"][0]["augmentation"] = "none"  # no augmentation by another name
    with pytest.raises(InputError, match="both hold"):
        merge([run("mle"), none])
    again = run("mle")
    again["records"] = [record("mle", "ece", 0.1)]
    with pytest.raises(InputError, match=r"both hold.*\(training\)"):
        merge([run("mle"), again])


def test_results_of_different_data_raise(tmp_path: Path) -> None:
    first = run("mle", data={"digits": {"train": "aaa", "test": "bbb"}})
    same = run("sgpa", data={"digits": {"train": "aaa", "outside": "ccc"}})
    assert merge([first, same])["run"]["data"] == {
        "digits": {"train": "aaa", "test": "bbb", "outside": "ccc"}
    }
    other = run("sgpa", data={"digits": {"train": "aaa", "test": "xyz"}})
    with pytest.raises(
        InputError, match=r"results 2 use different data from the earlier results.*digits \(test\) is xyz"
    ):
        write_report(merge([first, other]), tmp_path / "report")
    assert not (tmp_path / "report").exists()
    plain = [run("mle", data={"digits": "aaa"}), run("sgpa", data={"digits": "aaa"}), run("mcd")]
    assert merge(plain)["run"]["data"] == {"digits": "aaa"}
    assert merge([run("mle", data={"digits": "a"}), run("mle", dataset="letters", data={"letters": "b"})])


def test_unreadable_results_raise() -> None:
    with pytest.raises(InputError, match="no results to merge"):
        merge([])
    with pytest.raises(InputError, match="schema 2"):
        merge([run("mle"), {"schema": 2}])
    several = merge([run("mle"), run("mle", dataset="letters")])
    several["run"]["timings"] = [{"attention": "kernel", "method": "mle", "seed": 0, "train_seconds": 1.0}]
    with pytest.raises(InputError, match="a timing lacks its dataset"):
        merge([several])
