"""Models that come with the package are found by name."""

from typer.testing import CliRunner

import sgpa
from sgpa.cli.app import app
from sgpa.core.pretrained import FOLDER, NAMES, located, samples


def test_every_model_has_a_name_and_a_card():
    assert {folder.name for folder in FOLDER.iterdir() if folder.is_dir()} == set(NAMES)
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"## {name}\n" in card for name in NAMES)


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert located("digits") == FOLDER / "digits"
    (tmp_path / "digits").mkdir()
    assert str(located("digits")) == "digits"


def test_a_model_opens_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answers = sgpa.load("digits").predict([str(image) for image in samples(located("digits"))])
    assert [answer.trust for answer in answers] == [True, False]
    assert answers[0].label == "7"
    assert answers[1].reason == "unfamiliar"


def test_predict_without_files_answers_for_the_samples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, ["predict", "digits"])
    assert shown.exit_code == 0
    assert "digit.png  7" in shown.stdout
    assert "no (unfamiliar)" in shown.stdout


def test_other_models_have_no_samples(tmp_path):
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "a.png").touch()
    assert samples(tmp_path) == []
