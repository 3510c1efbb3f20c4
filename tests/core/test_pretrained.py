"""Models that come with the package are found by name."""

import sgpa
from sgpa.core.pretrained import FOLDER, NAMES, located
from support.paths import ROOT


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
    answers = sgpa.load("digits").predict(
        [str(ROOT / "examples" / name) for name in ("digit.png", "noise.png")]
    )
    assert [answer.trust for answer in answers] == [True, False]
    assert answers[0].label == "7"
    assert answers[1].reason == "unfamiliar"
