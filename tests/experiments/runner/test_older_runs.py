"""What version 0.1 left on disk still opens, predicts the same, counts as finished and can be resumed.

The folders in tests/fixtures/v0.1 were written by that version: runs of a recipe (with an ensemble that has a
temperature), a run that was stopped after three of six epochs, and a user's run on photos with --compare.
"""

import json
import shutil

import pytest

from sgpa.core.files import read_tensors
from sgpa.experiments.recipes import plan
from sgpa.experiments.runner import RunFolder, cells
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


@pytest.mark.parametrize("run", RUNS)
def test_predictions_are_the_same(run):
    photos = [str(OLD / "photos" / name) for name in ("dark/00.png", "light/01.png")]
    answers = json.loads(sgpa("predict", str(OLD / run), *photos, "--json").out)
    expected = json.loads((OLD / f"expected-{RUNS[run]}.json").read_text())
    for answer, before in zip(answers, expected, strict=True):
        assert answer["label"] == before["label"]
        for name in ("probability", "entropy", "mutual_information"):
            assert answer[name] == pytest.approx(before[name], abs=1e-4), name


def test_finished_runs_are_not_trained_again(tmp_path, monkeypatch):
    folder = shutil.copytree(OLD / "recipe-run", tmp_path / "runs")
    monkeypatch.setattr("sgpa.training.trainer._epoch", lambda *_: pytest.fail("trained again"))
    place = RunFolder.at(folder)
    for method, seeds in (("mle", (0, 1)), ("sgpa", (0,))):
        row = plan(place.recipe, method)
        for step in range(len(row.stages)):
            cells.train(place, row, step, seeds)


def test_a_stopped_run_is_resumed_and_ends_as_it_would_have(tmp_path):
    folder = shutil.copytree(OLD / "resumable", tmp_path / "runs")
    place = RunFolder.at(folder)
    row = plan(place.recipe, "sgpa")
    before = list(read_log(folder / "trainings" / "kernel-sgpa-0" / "log.jsonl"))
    (model,) = cells.train(place, row, 1, [0])
    after = list(read_log(folder / "trainings" / "kernel-sgpa-0" / "log.jsonl"))
    assert [line["epoch"] for line in after] == [1, 2, 3, 4, 5, 6]
    assert after[:3] == before  # nothing was done twice
    expected = read_tensors(OLD / "resumable" / "expected-model" / "model.safetensors")[0]
    for name, value in model.state_dict().items():
        assert value.sub(expected[name]).abs().max() < 0.02, name  # rounding, six epochs of at most 3e-3
