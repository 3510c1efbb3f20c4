"""How a table of texts is read: different words, pairs of them, or pieces of words."""

import random

import pytest
import torch

from sgpa.data import Dataset
from sgpa.data.texts.tokenizer import known_pairs
from sgpa.inference import readers
from sgpa.inference.readers import TextReader
from sgpa.models import KernelAttentionConfig, TokenConfig, Transformer
from sgpa.models.linear_start import linear_start
from support.small_models import small

FILLER = ["the", "a", "film", "cast", "plot", "scene", "music", "end"]


def negations(rows):
    """Texts whose class follows from pairs of words and from no single word."""
    draw = random.Random(0)
    texts, labels = [], []
    for i in range(rows):
        words = [draw.choice(["very good", "not bad"]), draw.choice(["very bad", "not good"])]
        words = [words[i % 2], *draw.choices(FILLER, k=4), draw.choice(FILLER)]
        draw.shuffle(words)
        texts.append(" ".join(words))
        labels.append(i % 2)
    return texts, torch.tensor(labels)


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr("sgpa.inference.readers.texts.TEXTS_FOR_PAIRS", 20)


def test_pairs_are_read_where_texts_are_many(few):
    texts, _ = negations(40)
    reader = TextReader.fit(texts)
    assert reader.distinct
    assert "not good" in reader.tokenizer.get_vocab()
    assert reader.max_tokens == 1024
    for fewer in (TextReader.fit(texts[:19]), TextReader.fit(texts, pairs=False)):
        assert fewer.distinct
        assert not known_pairs(fewer.tokenizer)
        assert fewer.max_tokens == 512


def test_texts_without_blanks_and_many_texts_are_pieces_of_words(few, monkeypatch):
    texts, _ = negations(40)
    assert not TextReader.fit([text.replace(" ", "_") for text in texts]).distinct
    assert not TextReader.fit(texts, words=False).distinct
    monkeypatch.setattr("sgpa.inference.readers.texts.FEW_TEXTS", 30)
    assert not TextReader.fit(texts).distinct


def test_saved_pairs_are_read_again(few, tmp_path):
    texts, _ = negations(40)
    reader = TextReader.fit(texts, column="review")
    reader.save(tmp_path)
    back = readers.load(tmp_path)
    assert (back.column, back.sizes) == (reader.column, reader.sizes)
    assert torch.equal(back.encode(texts)[0], reader.encode(texts)[0])


def test_pairs_say_what_single_words_do_not(few):
    texts, y = negations(400)

    def accuracy(reader):
        ids, _ = reader.encode(texts)
        torch.manual_seed(0)
        embedding = TokenConfig(**reader.sizes, embedding_width=16, scale=0.3, linear_start=True)
        sizes = {"width": 16, "depth": 1, "outputs": 2, "pooling": "sequence"}
        model = Transformer(small(embedding, KernelAttentionConfig(), **sizes))
        train, held_out = Dataset(ids[:200], y[:200]), Dataset(ids[200:300], y[200:300])
        assert linear_start(model, train, held_out)
        return float((model.predict(ids[300:]).label == y[300:]).float().mean())

    assert accuracy(TextReader.fit(texts[:200])) > 0.95
    assert accuracy(TextReader.fit(texts[:200], pairs=False)) < 0.7
