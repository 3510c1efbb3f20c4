"""The demo on embedded digits."""

import json
from collections import Counter
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from sgpa.cli.app import app
from sgpa.core.errors import ConfigError
from sgpa.data.images import digits
from sgpa.experiments import demo
from sgpa.experiments.recipes import DIGITS, RECIPES
from sgpa.experiments.tasks import EvaluationConfig

TINY = replace(
    DIGITS,
    model=replace(DIGITS.model, depth=1, width=16, heads=2),
    evaluation=EvaluationConfig(rows=40, ood_rows=40),
)


pytestmark = pytest.mark.xdist_group("demo")  # in one process: the tests share a run


@pytest.fixture(scope="module")
def tiny():
    """The demo with a smaller model."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(RECIPES, "digits", TINY)
        patched.setattr("sgpa.experiments.demo.DIGITS", TINY)
        yield


@pytest.fixture(scope="module")
def alone(tiny, tmp_path_factory):
    """The folder of a demo of two seeds, trained by one process, and its results."""
    folder = tmp_path_factory.mktemp("alone")
    return folder, run(folder, quiet, seeds=2, workers=1)


def run(directory, on_progress, seeds, workers):
    outcome = demo.run(directory, on_progress, seeds=seeds, scale=0.02, workers=workers)
    assert not outcome.failures
    return outcome.results


def quiet(*_):
    pass


def test_the_embedded_digits_have_their_sizes_and_counts():
    splits = digits.load()
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (300, 300, 1197)
    rows = torch.cat([part.inputs.flatten(1) for part in (splits.train, splits.validation, splits.test)])
    assert len(rows) == 1797
    assert rows.min() == -1
    assert rows.max() == 1
    counts = torch.cat([p.targets for p in (splits.train, splits.validation, splits.test)]).bincount()
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    with pytest.raises(ConfigError, match="train=5"):
        digits.load(train=5)


@pytest.mark.parametrize("shift", digits.SHIFTS)
def test_shifts_grow_with_their_strength_and_are_deterministic(shift):
    test = digits.load().test[:100]
    make = digits.SHIFTS[shift]
    distances = [(make(test, s).inputs - test.inputs).square().mean().item() for s in digits.STRENGTHS]
    assert distances == sorted(distances)
    assert distances[0] > 0
    assert torch.equal(make(test, 3).inputs, make(test, 3).inputs)
    assert make(test, 5).inputs.abs().max() <= 1


def test_photo_patches_fill_the_range_of_a_digit():
    patches = digits.photo_patches(50)
    assert patches.shape == (50, 1, 8, 8)
    assert patches.amin((1, 2, 3)).eq(-1).all()
    assert patches.amax((1, 2, 3)).eq(1).all()
    assert torch.equal(patches, digits.photo_patches(50))


@pytest.mark.slow
def test_the_demo_writes_tidy_records_and_repeats_no_finished_run(alone):
    folder, saved = alone
    assert json.loads((folder / "results.json").read_text())["records"] == saved["records"]
    columns = {
        "dataset",
        "augmentation",
        "evaluation",
        "shift",
        "attention",
        "method",
        "metric",
        "value",
        "seed",
    }
    assert all(set(record) == columns for record in saved["records"])
    counts = Counter(record["evaluation"] for record in saved["records"])
    clean = {r["metric"] for r in saved["records"] if r["evaluation"] == "in-distribution"}
    assert {"accuracy", "nll", "ece", "brier", "aurc"} <= clean
    cells, shifts = 2 * 3, 2 * 5  # two seeds of two methods and of logistic regression
    assert counts["in-distribution"] == cells * len(clean)
    always = clean - {"error_auroc", "error_fpr_at_95_tpr", "mce_20"}  # these need enough of some answers
    robust = [r for r in saved["records"] if r["evaluation"] == "robustness" and r["metric"] in always]
    assert len(robust) == cells * shifts * len(always)
    assert counts["ood-detection"] == cells * 5
    kinds = {"reliability", "risk-coverage", "entropy", "training", "examples", "trust", "data"}
    assert {c["kind"] for c in saved["curves"]} == kinds
    assert len(saved["run"]["timings"]) == 5
    logistic = [r for r in saved["records"] if r["method"] == "logistic:pixels"]
    assert {r["seed"] for r in logistic} == {0, 1}
    assert {r["shift"] for r in logistic} == {r["shift"] for r in saved["records"]}
    first, second = ([r["value"] for r in logistic if r["seed"] == seed] for seed in (0, 1))
    assert first == second
    assert all(timing["train_seconds"] > 0 for timing in saved["run"]["timings"])
    lines = []
    again = run(folder, lambda *line: lines.append(line), seeds=2, workers=1)
    assert again["records"] == saved["records"]
    assert not any("nll" in note for *_, note in lines)


@pytest.mark.slow
def test_two_workers_give_the_results_of_one(alone, tmp_path):
    torch.set_num_threads(1)
    together = run(tmp_path, quiet, seeds=1, workers=2)["records"]
    assert together == [record for record in alone[1]["records"] if record["seed"] == 0]


@pytest.mark.slow
@pytest.mark.usefixtures("no_pdf")
def test_the_commands_print_a_table_and_write_a_report(alone, tmp_path, monkeypatch):
    folder, _ = alone
    options = ["demo", "--out", str(folder), "--seeds", "2", "--scale", "0.02", "--workers", "1"]
    with monkeypatch.context() as patched:  # the report is drawn once, below
        patched.setattr("sgpa.report.write_report", lambda _, folder: folder / "report.html")
        result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    assert "SGPA" in result.output
    assert f"Report: {folder / 'report.html'}" in result.output.replace("\n", "")
    again = CliRunner().invoke(app, ["report", str(folder / "results.json"), "--out", str(tmp_path / "copy")])
    assert again.exit_code == 0
    assert (tmp_path / "copy" / "report.html").stat().st_size > 100_000


@pytest.mark.parametrize("command", [[], ["demo"], ["report"]])
def test_help_is_everywhere_with_an_example(command):
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert "Example" in result.output or not command


def test_bad_options_are_refused():
    assert CliRunner().invoke(app, ["demo", "--seeds", "0"]).exit_code == 2
    assert CliRunner().invoke(app, ["fly"]).exit_code == 2
