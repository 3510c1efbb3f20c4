"""Errors of held-out rows: each half at the epoch that the other half chooses."""

import pytest
import torch

from sgpa.core.types import Regression
from sgpa.evaluation.metrics import laplace_mixture_nlls
from sgpa.training.left_out import MOST_ROWS, LeftOut, update


def epochs_of(rows, epochs, seed=0, samples=3):
    """Predictions of held-out rows after each epoch, all equally good, and the values."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randn(rows, generator=generator, dtype=torch.double)
    noise = torch.randn(epochs, 1, rows, generator=generator, dtype=torch.double)
    spread = 0.1 * torch.randn(epochs, samples, rows, generator=generator, dtype=torch.double)
    return [Regression(y + n + s, torch.tensor(0.5)) for n, s in zip(noise, spread, strict=True)], y


@pytest.mark.parametrize("select", ["nll", "mae", "last"])
def test_every_row_has_the_epoch_that_the_other_half_chooses(select):
    predictions, y = epochs_of(rows=9, epochs=6)
    left_out = None
    for prediction in predictions:
        left_out = update(left_out, prediction, y, select)
    for i in range(9):
        others = torch.arange(9) % 2 != i % 2
        scores = []
        for epoch, p in enumerate(predictions):
            nll = laplace_mixture_nlls(p.samples[:, others], p.scale, y[others]).mean()
            mae = float((p.mean - y)[others].abs().mean())
            scores.append({"nll": float(nll), "mae": mae, "last": -epoch}[select])
        chosen = predictions[scores.index(min(scores))]
        assert float(left_out.error[i]) == pytest.approx(float((chosen.mean - y)[i].abs()))
        assert float(left_out.variance[i]) == pytest.approx(float(chosen.model_variance[i]))


def test_intervals_cover_new_rows_although_held_out_rows_chose_the_epoch():
    """All epochs are equally good: the one with the smallest held-out error has it by chance."""
    covered = {"of the choice": [], "left out": []}
    for seed in range(200):
        predictions, y = epochs_of(rows=30, epochs=20, seed=seed, samples=1)
        nll = [laplace_mixture_nlls(p.samples, p.scale, y).mean() for p in predictions]
        chosen = predictions[nll.index(min(nll))]
        rows = None
        for prediction in predictions:
            rows = update(rows, prediction, y, "nll")
        for name, residuals in {
            "of the choice": (chosen.mean - y).abs() / chosen.variance.sqrt(),
            "left out": rows.residuals(chosen.data_variance),
        }.items():
            new = Regression(torch.zeros(1, 1000).double(), chosen.scale, residuals.sort().values)
            low, high = new.interval(0.9)
            truth = torch.randn(1000, generator=torch.Generator().manual_seed(seed)).double()
            covered[name].append(float(((low <= truth) & (truth <= high)).double().mean()))
    means = {name: sum(shares) / len(shares) for name, shares in covered.items()}
    assert means["of the choice"] < 0.87
    assert means["left out"] == pytest.approx(28 / 31, abs=0.015)  # the 28th of 30 residuals


def test_the_noise_of_the_likelihood_may_be_refitted_later():
    rows = LeftOut(torch.zeros(2), torch.tensor([1.0, 3.0]), torch.tensor([0.0, 5.0]))
    assert rows.residuals(torch.tensor([4.0, 4.0])).tolist() == [0.5, 1.0]


def test_a_note_gives_the_errors_back():
    predictions, y = epochs_of(rows=5, epochs=1)
    rows = update(None, predictions[0], y, "nll")
    again = LeftOut.from_json(rows.to_json())
    for name, value in vars(rows).items():
        torch.testing.assert_close(vars(again)[name], value, atol=1e-6, rtol=0)


@pytest.mark.parametrize("rows", [1, MOST_ROWS + 1])
def test_too_few_and_very_many_rows_are_not_noted(rows):
    predictions, y = epochs_of(rows, epochs=1)
    assert update(None, predictions[0], y, "nll") is None
