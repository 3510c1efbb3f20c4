"""The models in the repository give the results in the repository."""

import pytest
from PIL import Image

from sgpa.evaluation import metrics
from sgpa.experiments.runner import open_cell, open_trained
from support.kept import kept
from support.paths import KEPT, ROOT


def test_the_digits_model_gives_the_kept_results():
    cell = KEPT["digits"]
    trained = open_trained(cell)
    test = open_cell(cell).task.splits.test
    p = trained.predictor.predict(test.inputs).probabilities.double()
    expected = kept("digits", method="sgpa", seed="0", evaluation="in-distribution")
    assert metrics.accuracy(p, test.targets) == pytest.approx(expected["accuracy"], abs=0.003)
    assert metrics.nll(p, test.targets) == pytest.approx(expected["nll"], abs=0.003)
    assert trained.classes == tuple("0123456789")


def test_kept_models_are_small():
    assert sum(file.stat().st_size for file in (ROOT / "models").rglob("*") if file.is_file()) < 8e6


def test_the_cifar10_model_reads_images_of_any_size(tmp_path):
    trained = open_trained(KEPT["cifar10"])
    Image.new("RGB", (80, 48), "navy").save(tmp_path / "night.png")
    rows = trained.reader.read([tmp_path / "night.png"])
    p = trained.predictor.predict(rows.inputs).probabilities
    assert trained.classes[3] == "cat"
    assert p.shape == (1, 10)
    assert p.sum() == pytest.approx(1)
