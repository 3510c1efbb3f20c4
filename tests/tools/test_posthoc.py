"""The tools that measure attached GPs, on tiny models and random rows."""

import random

import torch
from tools.posthoc import analysis, texts, train_images, weights
from tools.posthoc.columns import Columns
from tools.posthoc.evaluate import detectors, noisy_logits

import sgpa
from sgpa.core.files import write_tensors
from support.tiny_transformers import batch, make, vit


def test_columns_are_those_that_the_library_predicts_with():
    model = make(vit)
    train, held_out = [batch(model, 60, seed) for seed in range(2)], [batch(model, 60, 9)]
    gp = sgpa.attach(model, num_inducing=8).fit(train).calibrate(held_out)
    rows = Columns(gp, train).of(held_out)
    x, novelty = analysis.columns(rows).double(), gp._adapter.novelty
    kept = [gp._fitted.views.names.index(name) for name in novelty.views.names]
    torch.testing.assert_close(x[:, kept].mean(0), novelty.offset, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(novelty.score(x[:, kept]), rows["novelty"].double())
    assert analysis.carried(rows).shape[1] == 4
    assert {"novelty", "energy", "shares, layer 1", "distance 0.01, layer 3"} <= detectors(rows).keys()
    draws = noisy_logits(gp, held_out, torch.zeros(4), dropout=False)
    torch.testing.assert_close(draws[3], rows["logits"])


def test_training_of_images_lowers_the_loss(monkeypatch):
    monkeypatch.setattr(train_images, "RATE", 0.1)
    torch.manual_seed(0)
    images = torch.randint(0, 256, (512, 3, 32, 32), dtype=torch.uint8)
    labels = torch.zeros(512, dtype=torch.long)
    model = torch.nn.Module()
    model.head = torch.nn.Linear(3, 2)
    model.forward = lambda pixel_values: type("Out", (), {"logits": model.head(pixel_values.mean((2, 3)))})
    history = train_images.train(model, images, labels, epochs=3, limit=60.0, compile=False, seed=0)
    assert history[-1]["loss"] < history[0]["loss"]
    assert not model.training


def test_long_texts_keep_both_ends_and_batches_are_padded():
    def tokenizer(rows, **_):
        return {"input_ids": [[int(word) for word in row.split()] for row in rows]}

    rows = texts.encode(tokenizer, ["1 2 3 4 5 6 7 8 9", "1 2"], 6)
    assert rows == [[101, 1, 2, 8, 9, 102], [101, 1, 2, 102]]
    made = texts.batch(rows, [0, 1])
    assert made["attention_mask"].tolist() == [[1] * 6, [1, 1, 1, 1, 0, 0]]
    assert made["input_ids"][1, 4:].tolist() == [0, 0]


def test_damaged_sentences_differ_by_a_word_or_two():
    order = random.Random(0)
    text = "the cat sat on the mat"
    made = [texts.damaged(text, ["dogs bark"], order) for _ in range(50)]
    assert sum(row != text for row in made) > 40
    assert all(4 <= len(row.split()) <= 8 for row in made)


def test_models_come_back_from_their_parts(tmp_path):
    tensors = {"a": torch.randn(40, 30), "b": torch.randn(7), "c": torch.randn(3, 5, 2)}
    for i, part in enumerate(weights.parts(tensors)):
        write_tensors(tmp_path / f"{i}.safetensors", part)
    again = weights.join(sorted(tmp_path.glob("*.safetensors")))
    for name, value in tensors.items():
        torch.testing.assert_close(again[name], value, rtol=1e-3, atol=1e-3)
