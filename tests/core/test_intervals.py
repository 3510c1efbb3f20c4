"""Intervals of predicted values: quantiles of the mixture, or residuals of held-out rows."""

import pytest
import torch

from sgpa.core.errors import InputError
from sgpa.core.types import Regression


def test_one_component_has_the_quantiles_of_its_distribution():
    p = Regression(torch.tensor([[1.0, -2.0]], dtype=torch.double), torch.tensor(0.5, dtype=torch.double))
    oracle = torch.distributions.Laplace(p.samples[0], 0.5)
    for level in (0.5, 0.9, 0.99):
        low, high = p.interval(level)
        assert torch.allclose(low, oracle.icdf(torch.tensor((1 - level) / 2, dtype=torch.double)), atol=1e-6)
        assert torch.allclose(high, oracle.icdf(torch.tensor((1 + level) / 2, dtype=torch.double)), atol=1e-6)


def test_the_quantile_of_a_mixture_inverts_its_distribution_function():
    generator = torch.Generator().manual_seed(0)
    p = Regression(
        torch.randn(7, 30, generator=generator).double(), torch.rand(7, 1, generator=generator).double() + 0.1
    )
    for level in (0.03, 0.4, 0.8):
        x = p.quantile(level)
        cdf = torch.distributions.Laplace(p.samples, p.scale.expand_as(p.samples)).cdf(x).mean(0)
        assert torch.allclose(cdf, torch.full_like(cdf, level), atol=1e-6)


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_by_residuals_cover_their_share_whatever_the_scale(level):
    """The likelihood's scale is three times too small; held-out rows put it right."""
    generator = torch.Generator().manual_seed(1)
    shares = []
    for _ in range(40):
        y = torch.randn(1060, generator=generator)  # the mean is 0, the deviation 1
        p = Regression(torch.zeros(1, 1060), torch.tensor(0.24))
        residuals = (y[:60].abs() / p.variance[:60].sqrt()).sort().values
        low, high = Regression(p.samples[:, 60:], p.scale, residuals).interval(level)
        shares.append(((low <= y[60:]) & (y[60:] <= high)).float().mean())
    assert float(torch.stack(shares).mean()) == pytest.approx(level, abs=0.02)


def test_too_few_residuals_give_the_largest():
    p = Regression(torch.zeros(1, 1), torch.tensor(0.5**0.5), torch.tensor([0.5, 2.0]))
    assert float(p.interval(0.9)[1]) == pytest.approx(2.0)


@pytest.mark.parametrize("level", [0.0, 1.0, -1, 90])
def test_levels_out_of_range_are_one_line(level):
    with pytest.raises(InputError, match=rf"level={level} \(allowed: between 0 and 1\)"):
        Regression(torch.zeros(1, 1), torch.tensor(1.0)).interval(level)
