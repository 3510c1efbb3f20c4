"""The cache of features."""

import pytest
import torch

from sgpa.core.errors import InputError
from sgpa.core.files import write_tensors
from sgpa.data.language_model import features as module
from sgpa.data.language_model.features import cached_features
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


def test_cached_features_equal_the_features_of_the_model(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TOGETHER", 2)
    elmo = model(words=["<unk>", "<S>", "</S>", "the", "cat"])
    cached = cached_features(elmo, ROWS, tmp_path)
    for asked in (ROWS, ROWS[1:2], [ROWS[4], ROWS[3]]):
        expected = elmo.features(asked)
        assert cached(asked).shape == expected.shape
        assert cached(asked).dtype == torch.float16
        assert torch.allclose(cached(asked).float(), expected, atol=2e-3, rtol=2e-3)


def test_features_are_computed_once_for_a_model_and_its_sentences(tmp_path, monkeypatch):
    first = cached_features(model(), ROWS, tmp_path)(ROWS)
    asked = []
    monkeypatch.setattr(ElmoModel, "features", lambda *_, **__: asked.append(1))
    again = cached_features(model(), reversed(ROWS), tmp_path)(ROWS)
    assert torch.equal(first, again)
    assert not asked
    monkeypatch.undo()
    (file,) = tmp_path.iterdir()
    cached_features(model(1), ROWS, tmp_path)  # other weights
    cached_features(model(), ROWS[:2], tmp_path)  # other sentences
    cached_features(model(words=["<unk>", "<S>", "</S>", "a"]), ROWS, tmp_path)
    cached_features(model(words=["<unk>", "<S>", "</S>", "b"]), ROWS, tmp_path)  # other words
    assert len(list(tmp_path.iterdir())) == 5
    file.write_bytes(file.read_bytes()[:100])  # cut short
    assert torch.equal(cached_features(model(), ROWS, tmp_path)(ROWS), first)
    for damaged in ({"other": torch.zeros(2)}, {"features": torch.zeros(3, 2, 12)}):
        write_tensors(file, damaged)
        assert torch.equal(cached_features(model(), ROWS, tmp_path)(ROWS), first)


def test_cache_folder_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be created"):
        cached_features(model(), ROWS, tmp_path / "file" / "features")
