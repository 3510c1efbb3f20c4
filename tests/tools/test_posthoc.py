"""The tools that measure attached GPs, on tiny models and random rows."""

import pytest
import torch
from tools.posthoc import scores, train_images

from support.tiny_transformers import batch, make, vit


@pytest.fixture(scope="module")
def found():
    model = make(vit)
    noise = {"pixel_values": 4 * torch.randn(20, 3, 8, 8)}
    tests = {"test": [batch(model, 30, 20)], "other": [batch(model, 30, 21)]}
    train, held_out = [batch(model, 40, seed) for seed in range(2)], [batch(model, 40, 9)]
    return scores.measure(model, train, held_out, tests, {"noise": [noise]}, samples=2, num_inducing=8)


def test_calibrators_that_keep_the_labels_have_one_accuracy(found):
    for name in ("test", "other"):
        same = {found[name][method]["accuracy"] for method in ("MLE", "temperature", "GP")}
        assert len(same) == 1
        assert "GP, 2 samples" in found[name]


def test_every_detector_has_an_auroc(found):
    for name in ("AUROC of noise", "AUROC of other"):
        assert {"novelty", "entropy", "energy", "Mahalanobis, layer 3", "GP share, layer 1"} <= found[
            name
        ].keys()
        assert all(0 <= value <= 1 for value in found[name].values())


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
