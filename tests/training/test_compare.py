"""The choice between SGPA and its point model."""

import pytest
import torch

from sgpa.core.types import Classification
from sgpa.data import Dataset
from sgpa.training.compare import Comparison, compare


class Fixed:
    """A predictor whose probabilities are known."""

    def __init__(self, right):
        self.p = torch.stack([right, 1 - right], -1)  # [N, 2]

    def predict(self, inputs):
        return Classification(self.p, torch.zeros(len(inputs)))


def rows(count):
    return Dataset(torch.zeros(count, 3), torch.zeros(count, dtype=torch.long))


def test_the_error_is_that_of_the_paired_difference():
    one, two = torch.tensor([0.9, 0.5, 0.8, 0.7]), torch.tensor([0.8, 0.6, 0.9, 0.6])
    comparison = compare({"sgpa": Fixed(one), "ts": Fixed(two)}, rows(4))
    difference = two.log() - one.log()
    assert comparison.error == pytest.approx(float(difference.std()) / 2, abs=1e-4)
    assert comparison.nll["sgpa"] == pytest.approx(-float(one.log().mean()), abs=1e-4)


def test_sgpa_is_chosen_unless_the_other_is_clearly_better():
    assert Comparison({"sgpa": 0.30, "ts": 0.31}, 45, 0.02).chosen == "sgpa"
    tie = Comparison({"sgpa": 0.31, "ts": 0.30}, 45, 0.02)
    assert tie.chosen == "sgpa"
    assert "chosen: SGPA (the difference is within 2 errors of 0.020)" in str(tie)
    assert Comparison({"sgpa": 0.335, "ts": 0.30}, 45, 0.02).chosen == "sgpa"
    clear = Comparison({"sgpa": 0.345, "ts": 0.30}, 45, 0.02)
    assert clear.chosen == "ts"
    assert str(clear).endswith("chosen: point model + temperature")


def test_without_sgpa_the_smaller_nll_counts():
    assert Comparison({"mle": 0.5, "ts": 0.4}, 45, 0.2).chosen == "ts"
