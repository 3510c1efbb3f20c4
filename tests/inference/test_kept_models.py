"""The models in the repository give the results in the repository."""

from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont
from tools.trust_rates import judge, plain_colours, text_pictures, uniform_noise

from sgpa.evaluation import metrics
from support.kept import kept
from support.open_runs import open_cell, open_trained
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
    assert (
        sum(
            file.stat().st_size
            for file in (ROOT / "src" / "sgpa" / "pretrained").rglob("*")
            if file.is_file()
        )
        < 8e6
    )


def test_the_cifar10_model_reads_images_of_any_size(tmp_path):
    trained = open_trained(KEPT["cifar10"])
    Image.new("RGB", (80, 48), "navy").save(tmp_path / "night.png")
    rows = trained.reader.read([tmp_path / "night.png"])
    p = trained.predictor.predict(rows.inputs).probabilities
    assert trained.classes[3] == "cat"
    assert p.shape == (1, 10)
    assert p.sum() == pytest.approx(1)


@pytest.mark.parametrize("make", [plain_colours, uniform_noise, text_pictures])
def test_the_cifar10_model_does_not_trust_pictures_unlike_its_data(make):
    trained = open_trained(KEPT["cifar10"])
    trusted, _, novelty = judge(trained, make(20))
    assert not trusted.any()
    assert novelty.min() > 0.95


def test_the_digits_model_does_not_trust_digits_drawn_with_a_font(tmp_path):
    files = []
    for ink, paper in ((0, 255), (255, 0)):
        for digit in range(10):
            picture = Image.new("L", (28, 28), paper)
            ImageDraw.Draw(picture).text((7, 0), str(digit), fill=ink, font=ImageFont.load_default(24))
            files.append(tmp_path / f"{ink}-{digit}.png")
            picture.save(files[-1])
    trained = open_trained(KEPT["digits"])
    answers = trained.answers(trained.reader.read(files, [], None))
    wrong = [a for a in answers if a["label"] != Path(a["file"]).stem[-1]]
    assert len(wrong) > 10  # they are unlike the handwritten ones
    assert sum(answer["trust"] for answer in wrong) <= 2
