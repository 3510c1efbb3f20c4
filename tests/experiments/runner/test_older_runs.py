"""What version 0.1 wrote still opens, predicts the same, counts as finished and can be resumed.

The folders in tests/fixtures/v0.1 were written by that version: runs of a recipe (with an ensemble that has a
temperature), a run that was stopped after three of six epochs, and a user's run on photos with --compare.
"""

import json
import shutil

import pytest

from sgpa.experiments.load import load as load_run
from sgpa.experiments.recipes import plan
from sgpa.experiments.runner import RunFolder, train_stage
from sgpa.models import Transformer
from sgpa.training.logs import read_log
from support.paths import ROOT
from support.terminal import sgpa

OLD = ROOT / "tests" / "fixtures" / "v0.1"
RUNS = {
    "user-run": "user-run",
    "recipe-run/cells/kernel-sgpa-0": "recipe-run_cells_kernel-sgpa-0",
    "recipe-run/cells/kernel-mcd-1": "recipe-run_cells_kernel-mcd-1",
    "recipe-run/cells/kernel-kflla-0": "recipe-run_cells_kernel-kflla-0",
    "recipe-run/cells/kernel-de-0": "recipe-run_cells_kernel-de-0",
}
PHOTOS = [OLD / "photos" / name for name in ("dark/00.png", "light/01.png")]


@pytest.mark.parametrize("run", RUNS)
def test_predictions_are_the_same_before_and_after_export(run, tmp_path):
    """Answers draw other numbers than then, for every row its own; the predictor draws the same."""
    answers = sgpa("predict", OLD / run, *PHOTOS, "--json").out
    expected = json.loads((OLD / f"expected-{RUNS[run]}.json").read_text())
    trained = load_run(str(OLD / run))
    made = trained.predictor.predict(trained.reader.read(PHOTOS).inputs)
    parts = {
        "probability": made.probabilities.amax(-1),
        "entropy": made.entropy,
        "mutual_information": made.mutual_information,
    }
    for i, (answer, before) in enumerate(zip(json.loads(answers), expected, strict=True)):
        assert answer["label"] == before["label"]
        for name, values in parts.items():
            assert float(values[i]) == pytest.approx(before[name], abs=1e-4), name
            assert answer[name] == pytest.approx(before[name], abs=0.02), name
    assert sgpa("export", OLD / run, tmp_path / "model").code == 0
    assert not {"path", "options", "data"} & set(json.loads((tmp_path / "model" / "run.json").read_text()))
    assert sgpa("predict", tmp_path / "model", *PHOTOS, "--json").out == answers


@pytest.mark.parametrize("run", ["user-run", "recipe-run"])
def test_results_are_reported(run, tmp_path, monkeypatch):
    pages = []
    monkeypatch.setattr("sgpa.report.write_report", lambda results, folder: pages.append(results) or folder)
    assert sgpa("report", OLD / run, "--out", tmp_path).code == 0
    assert {"sgpa", "mle"} <= {record["method"] for record in pages[0]["records"]}
    assert sgpa("evaluate", OLD / run).code == 0  # shows what was measured


def test_a_users_run_is_not_evaluated_again():
    assert "without the recipe" in sgpa("evaluate", OLD / "user-run", "--again").complaint


def test_finished_runs_are_not_trained_again(tmp_path, monkeypatch):
    folder = shutil.copytree(OLD / "recipe-run", tmp_path / "runs")
    monkeypatch.setattr("sgpa.training.trainer._epoch", lambda *_: pytest.fail("trained again"))
    run_folder = RunFolder.at(folder)
    for method, seeds in (("mle", (0, 1)), ("sgpa", (0,))):
        row = plan(run_folder.recipe, method)
        for stage in range(len(row.stages)):
            for seed in seeds:
                train_stage(run_folder, row, stage, seed)


def test_a_stopped_run_is_resumed_and_predicts_as_if_it_had_not_stopped(tmp_path):
    folder = shutil.copytree(OLD / "resumable", tmp_path / "runs")
    run_folder = RunFolder.at(folder)
    log = folder / "trainings" / "kernel-sgpa-0" / "log.jsonl"
    before = list(read_log(log))
    model = train_stage(run_folder, plan(run_folder.recipe, "sgpa"), 1, 0)
    after = list(read_log(log))
    assert [line["epoch"] for line in after] == [1, 2, 3, 4, 5, 6]
    assert after[:3] == before  # finished epochs are not repeated
    expected = Transformer.from_pretrained(OLD / "resumable" / "expected-model")
    inputs = run_folder.task(0).splits.test.inputs[:50]
    a, b = (m.predict(inputs).probabilities for m in (model, expected))
    assert (a - b).abs().max() < 0.02
