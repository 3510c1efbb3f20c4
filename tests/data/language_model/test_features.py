"""Features of sentences are made once."""

import pytest
import torch

from sgpa.core.errors import InputError
from sgpa.data.language_model import features as module
from sgpa.data.language_model.features import kept_features
from sgpa.data.language_model.model import ElmoConfig, ElmoModel
from sgpa.data.language_model.next_word import NextWord

TINY = ElmoConfig(filters=((1, 4), (2, 5)), character_width=4, max_characters=12, width=6, cell=8)
ROWS = [
    ("the", "cat", "sat"),
    ("a", "dog"),
    ("the", "cat", "sat"),
    ("it", "ran", "to", "the", "mat"),
    ("no",),
]


def model(seed=0, words=()):
    torch.manual_seed(seed)
    return ElmoModel(TINY, NextWord(TINY.width, words) if words else None).eval()


def test_they_are_the_models_own(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TOGETHER", 2)
    elmo = model(words=["<unk>", "<S>", "</S>", "the", "cat"])
    kept = kept_features(elmo, ROWS, tmp_path)
    for asked in (ROWS, ROWS[1:2], [ROWS[4], ROWS[3]]):
        expected = elmo.features(asked)
        assert kept(asked).shape == expected.shape
        assert kept(asked).dtype == torch.float16
        assert torch.allclose(kept(asked).float(), expected, atol=2e-3, rtol=2e-3)


def test_they_are_made_once_for_the_same_model_and_sentences(tmp_path, monkeypatch):
    first = kept_features(model(), ROWS, tmp_path)(ROWS)
    asked = []
    monkeypatch.setattr(ElmoModel, "features", lambda *_, **__: asked.append(1))
    again = kept_features(model(), reversed(ROWS), tmp_path)(ROWS)
    assert torch.equal(first, again)
    assert not asked
    monkeypatch.undo()
    (file,) = tmp_path.iterdir()
    kept_features(model(1), ROWS, tmp_path)  # other weights
    kept_features(model(), ROWS[:2], tmp_path)  # other sentences
    kept_features(model(words=["<unk>", "<S>", "</S>", "a"]), ROWS, tmp_path)
    kept_features(model(words=["<unk>", "<S>", "</S>", "b"]), ROWS, tmp_path)  # other words
    assert len(list(tmp_path.iterdir())) == 5
    file.write_bytes(file.read_bytes()[:100])  # cut short
    assert torch.equal(kept_features(model(), ROWS, tmp_path)(ROWS), first)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be made"):
        kept_features(model(), ROWS, tmp_path / "file" / "features")
