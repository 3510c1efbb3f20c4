"""`sgpa.load`: saved models, runs of the command line, folders of `fit`."""

import json
import shutil

import pytest
import torch
from PIL import Image

import sgpa
from sgpa.core.errors import CheckpointError, InputError
from sgpa.inference.answer_list import AnswerList
from sgpa.inference.preferred import preferred_cell
from sgpa.models import Transformer
from support.paths import ROOT
from support.small_models import small

OLD = ROOT / "tests" / "fixtures" / "v0.1"
PHOTOS = [OLD / "photos" / name for name in ("dark/00.png", "light/01.png")]


def test_a_saved_model_is_opened(tmp_path):
    model = Transformer(small()).eval()
    model.save_pretrained(tmp_path / "model")
    opened = sgpa.load(tmp_path / "model")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), opened.parameters(), strict=True))


def test_a_run_reads_paths_and_pillow_images():
    trained = sgpa.load(str(OLD / "user-run"))
    expected = json.loads((OLD / "expected-user-run.json").read_text())
    answers = trained.predict(PHOTOS)
    assert [answer.label for answer in answers] == [answer["label"] for answer in expected]
    assert answers[0].probability == pytest.approx(expected[0]["probability"], abs=0.02)
    for inputs in ([str(file) for file in PHOTOS], [Image.open(file) for file in PHOTOS]):
        again = trained.predict(inputs)
        assert [answer.probability for answer in again] == [answer.probability for answer in answers]
    (alone,) = trained.predict(str(PHOTOS[0]))
    assert alone.file == answers[0].file
    pixels = trained.reader.read(PHOTOS).inputs
    for array in (pixels.numpy(), list(pixels.numpy()), pixels.flip(3).numpy()[..., ::-1]):
        assert trained.predict(array)[1].entropy == answers[1].entropy
    with pytest.raises(InputError, match="trained on uint8 pixels; give uint8 from 0 to 255"):
        trained.predict(pixels.numpy() / 255)
    with pytest.raises(InputError, match="mix images and paths"):
        trained.predict([PHOTOS[0], Image.open(PHOTOS[1])])
    with pytest.raises(InputError, match=r"inputs of type dict \(allowed: paths, strings"):
        trained.predict({})
    with pytest.raises(InputError, match="nothing to predict"):
        trained.predict([])
    assert "2 classes: dark, light" in trained._repr_html_()


def test_of_several_cells_sgpa_is_opened_and_named(caplog, tmp_path):
    run = OLD / "recipe-run"
    cell, others = preferred_cell(run)
    assert cell.metadata["method"] == "sgpa"
    assert others >= 3
    assert sgpa.load(run).classes == tuple("0123456789")
    assert "opened kernel-sgpa-0, SGPA, one of" in caplog.text
    copy = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(copy / "cells" / "kernel-sgpa-0")
    assert preferred_cell(copy)[0].metadata["method"] == "mle"


def test_the_chosen_method_of_a_users_run_is_opened(tmp_path):
    run = shutil.copytree(OLD / "recipe-run", tmp_path / "run")
    recipe = json.loads((run / "recipe.json").read_text())
    recipe["values"]["task"]["path"] = "photos"
    recipe["values"]["methods"] = ["mle", "sgpa"]
    (run / "recipe.json").write_text(json.dumps(recipe))
    assert preferred_cell(run)[0].metadata["method"] == "mle"


def test_folders_that_hold_nothing_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="nowhere is not a folder"):
        sgpa.load(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="holds neither a saved model"):
        sgpa.load(tmp_path)


def test_answers_are_a_table_in_notebooks():
    rows = [{"file": "<a>.png", "label": "cat", "probability": 0.9, "trust": i % 2 == 0} for i in range(25)]
    answers = AnswerList(rows)
    html = answers._repr_html_()
    assert html.count("<tr>") == 21
    assert "&lt;a&gt;.png" in html
    assert "and 5 more" in html
    assert html.count("<svg") == 20
    assert answers[1].trust is False
    assert answers[0].novelty is None  # not measured
    with pytest.raises(AttributeError, match="the answer has no 'margin'; it has file, label"):
        _ = answers[0].margin
    assert AnswerList([])._repr_html_() == "<p>no answers</p>"
