import numpy as np
import pytest
import torch

from sgpa.data import corruptions
from sgpa.errors import InputError
from sgpa.evaluation import Subject
from sgpa.robustness import evaluate_corruptions
from sgpa.types import Classification

SUBJECT = Subject("cifar10", "kernel", "mle", 0)
TYPES = ("gaussian_noise", "contrast")


class Brightness:
    """Says class 1 for bright images."""

    def predict(self, images):
        p = images.float().mean((1, 2, 3)).div(255)
        probabilities = torch.stack([1 - p, p], 1)
        return Classification(probabilities, torch.special.entr(probabilities).sum(-1))


def data(n=12):
    labels = torch.arange(n) % 2
    noise = torch.randint(0, 60, (n, 3, 32, 32))
    return (noise + 150 * labels.view(-1, 1, 1, 1)).to(torch.uint8), labels


def test_the_mean_over_types_stands_beside_every_type():
    images, labels = data()
    told = []
    found = evaluate_corruptions(
        Brightness(),
        SUBJECT,
        images,
        labels,
        types=TYPES,
        severities=(1, 5),
        tell=lambda *line: told.append(line),
    )
    shifts = {r["shift"] for r in found.records}
    assert shifts == {
        f"cifar10-c-regenerated{kind}:{s}" for kind in ("", *(f"/{name}" for name in TYPES)) for s in (1, 5)
    }
    nll = {r["shift"]: r["value"] for r in found.records if r["metric"] == "nll"}
    single = [nll[f"cifar10-c-regenerated/{name}:5"] for name in TYPES]
    assert nll["cifar10-c-regenerated:5"] == pytest.approx(np.mean(single))
    assert told[-1] == ("done", 4, 4)


def test_ready_made_files_are_used_when_there_are_any(tmp_path):
    images, labels = data(4)
    stacked = np.concatenate([images.permute(0, 2, 3, 1).numpy()] * 5)
    for name in TYPES:
        np.save(tmp_path / f"{name}.npy", stacked)
    found = evaluate_corruptions(
        Brightness(), SUBJECT, images, labels, types=TYPES, severities=(2,), ready_made=tmp_path
    )
    assert {r["shift"] for r in found.records} == {"cifar10-c:2", *(f"cifar10-c/{name}:2" for name in TYPES)}
    with pytest.raises(InputError, match=r"holds uint8 .* expected uint8 \[15, 32, 32, 3\]"):
        evaluate_corruptions(Brightness(), SUBJECT, images[:3], labels[:3], types=TYPES, ready_made=tmp_path)


def test_all_fifteen_are_the_default():
    assert len(corruptions.NAMES) == 15
