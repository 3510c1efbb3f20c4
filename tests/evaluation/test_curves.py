"""Whether a training ended too soon."""

import numpy as np
import pytest

from sgpa.evaluation.curves import FALL, still_falls


def test_a_fall_in_the_last_fifth_is_measured_from_the_validation_before_it():
    nll = [3.0, 2.5, 2.2, 2.1, 2.0, 1.9, 1.8, 1.7, 1.55, 1.5]
    assert still_falls(nll) == pytest.approx(1.7 - 1.5)


@pytest.mark.parametrize(
    "nll",
    [
        [],
        [2.0, 1.0],  # too few to say
        [2.0, 1.5, 1.2, 1.1, 1.15],  # the best was not the last
        [2.0, 1.5, 1.2, 1.1, 1.1],
        [2.0, 1.5, 1.2, 1.0, 1.0 - FALL / 2],
    ],
)
def test_a_training_that_was_long_enough_is_not_named(nll):
    assert still_falls(nll) is None


def test_values_below_zero_count_as_others_do():
    """NLL of values may be negative: the fall is in nats, not in percent."""
    nll = np.linspace(1.0, -1.0, 20).tolist()
    assert still_falls(nll) == pytest.approx(4 * 2 / 19, abs=1e-5)
