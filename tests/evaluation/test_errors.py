"""Standard errors against their definitions and against the spread over repeated experiments."""

import numpy as np
import pytest

from sgpa.core.errors import InputError
from sgpa.evaluation.errors import Estimate, auroc_terms, bootstrap, resamples
from sgpa.evaluation.metrics import auroc


def both(inside, outside):
    return auroc(np.r_[inside, outside], np.r_[np.zeros(len(inside)), np.ones(len(outside))])


@pytest.mark.parametrize("digits", [6, 1])  # with and without ties
def test_the_mean_of_the_terms_is_the_auroc(digits):
    rng = np.random.default_rng(0)
    inside, outside = (rng.normal(shift, 1, 57).round(digits) for shift in (0, 0.7))
    assert auroc_terms(inside, outside).mean() == pytest.approx(both(inside, outside), abs=1e-12)


@pytest.mark.parametrize("shared", [0.0, 0.9])  # independent rows, and copies that resemble their rows
def test_the_error_is_the_spread_over_repeated_experiments(shared):
    rng = np.random.default_rng(1)
    values, errors = [], []
    for _ in range(400):
        common = rng.normal(0, 1, 80)
        inside, outside = (
            shift + np.sqrt(shared) * common + np.sqrt(1 - shared) * rng.normal(0, 1, 80)
            for shift in (0, 0.8)
        )
        estimate = Estimate.mean(auroc_terms(inside, outside))
        values.append(estimate.value)
        errors.append(estimate.error)
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.12)


def test_the_bootstrap_error_of_a_mean_is_that_of_the_formula():
    x = np.random.default_rng(2).normal(0, 1, 500)
    spread = bootstrap(lambda rows: float(x[rows].mean()), resamples(500, 400)).std(ddof=1)
    assert spread == pytest.approx(Estimate.mean(x).error, rel=0.1)
    assert np.array_equal(resamples(9, 3, seed=4), resamples(9, 3, seed=4))


def test_one_row_has_no_error():
    with pytest.raises(InputError, match="needs two rows"):
        Estimate.mean([1.0])
