"""Vector and structured matrix scaling against general optimisers and their limits."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import cross_entropy

from sgpa.core.errors import InputError
from sgpa.gp.temperature import careful_temperature
from sgpa.methods.scaling import Objective, fit_matrix, matrix_scaling, vector_scaling


def drawn(rows, weight, offset, seed=0, scale=2.0):
    """Logits, and labels of the distribution that an affine map of them has."""
    generator = torch.Generator().manual_seed(seed)
    f = scale * torch.randn(rows, len(offset), generator=generator, dtype=torch.float64)
    p = (f @ torch.as_tensor(weight).double().T + torch.tensor(offset)).softmax(-1)
    return f, p.multinomial(1, generator=generator).squeeze(1)


MIXED = [[0.6, 0.5, 0.0], [0.0, 0.6, -0.4], [0.3, 0.0, 0.6]]


def test_vector_scaling_recovers_scale_and_offset():
    f, y = drawn(8000, 0.5 * torch.eye(3), [1.0, 0.0, 0.0])
    scaling = vector_scaling(f, y)
    centre = torch.eye(3, dtype=torch.float64) - 1 / 3
    torch.testing.assert_close(scaling.weight, 0.5 * centre, rtol=0, atol=0.05)
    assert abs(float(scaling.offset[0] - scaling.offset[1]) - 1) < 0.15


def test_vector_scaling_of_few_rows_is_about_a_temperature():
    f, y = drawn(45, 0.5 * torch.eye(10), [0.0] * 10, seed=1)
    test, labels = drawn(4000, 0.5 * torch.eye(10), [0.0] * 10, seed=2)
    tempered = test / careful_temperature(f.unsqueeze(0), y)
    loose = fit_matrix(f, y, (1e-6, math.inf)).logits(test)
    shrunk = cross_entropy(vector_scaling(f, y).logits(test), labels)
    assert shrunk < cross_entropy(tempered, labels) + 0.05
    assert shrunk < cross_entropy(loose, labels) - 0.05


@pytest.mark.parametrize("penalties", [(3.0, 20.0), (0.1, 0.1), (5.0, math.inf), (math.inf, 5.0)])
def test_matrix_scaling_is_the_minimum_that_a_general_optimiser_finds(penalties):
    f, y = drawn(200, MIXED, [0.5, 0.0, -0.5])
    scaling = fit_matrix(f, y, penalties)
    z = f - f.mean(1, keepdim=True)
    rms = z.square().mean().sqrt()
    free = [math.isfinite(penalty) for penalty in penalties]

    def total(x):
        """The penalised sum, written independently: a, d, b and the six off-diagonal weights."""
        a, d, b = x[0], x[1:4] * free[0], x[4:7] * free[0]
        M = torch.zeros(3, 3, dtype=torch.float64)
        M[~torch.eye(3, dtype=torch.bool)] = x[7:13] * free[1]
        nll = cross_entropy((z / rms) @ (a * torch.eye(3) + d.diag() + M).T + b, y, reduction="sum")
        shrink = [0.0 if math.isinf(penalty) else penalty / 2 for penalty in penalties]
        return nll + shrink[0] * (d @ d + b @ b) + shrink[1] * M.square().sum()

    start = np.r_[1.0, np.zeros(12)]
    best = minimize(lambda x: total(torch.from_numpy(x)).item(), start, method="Powell", tol=1e-12)
    best = minimize(lambda x: total(torch.from_numpy(x)).item(), best.x, method="BFGS", tol=1e-10)
    x = torch.from_numpy(best.x)
    M = torch.zeros(3, 3, dtype=torch.float64)
    M[~torch.eye(3, dtype=torch.bool)] = x[7:13] * free[1]
    W = x[0] * torch.eye(3) + (x[1:4] * free[0]).diag() + M
    expected = ((z / rms) @ W.T + x[4:7] * free[0]).softmax(-1)
    torch.testing.assert_close(scaling.logits(f).softmax(-1), expected, rtol=0, atol=1e-5)


def test_the_gradient_is_that_of_finite_differences():
    f, y = drawn(50, MIXED, [0.5, 0.0, -0.5])
    objective = Objective(f.numpy(), y.numpy(), (2.0, 3.0))
    x = np.random.default_rng(0).normal(size=1 + 6 + 9)
    x[7:].reshape(3, 3)[np.diag_indices(3)] = 0  # they are no variables
    slopes = objective(x)[1]
    for i in range(len(x)):
        step = np.eye(len(x))[i] * 1e-6
        if slopes[i] == 0 and i in (7, 11, 15):
            continue
        numeric = (objective(x + step)[0] - objective(x - step)[0]) / 2e-6
        assert slopes[i] == pytest.approx(numeric, abs=1e-6)


def test_without_penalties_it_is_multinomial_logistic_regression():
    f, y = drawn(3000, MIXED, [0.5, 0.0, -0.5])
    probabilities = fit_matrix(f, y, (1e-9, 1e-9)).logits(f).softmax(-1)
    centred = f - f.mean(1, keepdim=True)
    reference = LogisticRegression(C=1e9, tol=1e-10, max_iter=5000).fit(centred.numpy(), y.numpy())
    expected = torch.from_numpy(reference.predict_proba(centred.numpy()))
    torch.testing.assert_close(probabilities, expected, rtol=0, atol=1e-4)


def test_infinite_penalties_leave_temperature_scaling():
    f, y = drawn(300, MIXED, [0.5, 0.0, -0.5])
    expected = f / careful_temperature(f.unsqueeze(0), y)
    torch.testing.assert_close(fit_matrix(f, y, (math.inf, math.inf)).logits(f), expected)
    strong = fit_matrix(f, y, (1e9, 1e9)).logits(f).softmax(-1)
    torch.testing.assert_close(strong, expected.softmax(-1), rtol=0, atol=1e-4)


def test_cross_validation_shrinks_few_rows_and_frees_many():
    f, y = drawn(60, 0.5 * torch.eye(6), [0.0] * 6, seed=1)
    test, labels = drawn(4000, 0.5 * torch.eye(6), [0.0] * 6, seed=2)
    few = matrix_scaling(f, y)
    loose = fit_matrix(f, y, (1e-6, 1e-6))
    assert cross_entropy(few.logits(test), labels) < cross_entropy(loose.logits(test), labels) - 0.05
    f, y = drawn(3000, MIXED, [0.5, 0.0, -0.5])
    test, labels = drawn(4000, MIXED, [0.5, 0.0, -0.5], seed=3)
    many = matrix_scaling(f, y)
    assert all(math.isfinite(penalty) for penalty in many.penalties)
    vector = vector_scaling(f, y).logits(test)
    assert cross_entropy(many.logits(test), labels) < cross_entropy(vector, labels) - 0.01


@pytest.mark.parametrize("fit", [vector_scaling, matrix_scaling])
@pytest.mark.parametrize(
    ("f", "y", "complaint"),
    [
        (torch.randn(9, 2), torch.zeros(9).long(), "all 9 rows have label 0"),
        (torch.randn(9, 2), torch.arange(9), "labels from 0 to 8"),
        (torch.randn(9), torch.arange(9), r"logits \[9\]"),
        (torch.full((4, 2), math.nan), torch.arange(4) % 2, "not finite"),
    ],
)
def test_bad_rows_are_one_line(fit, f, y, complaint):
    with pytest.raises(InputError, match=complaint) as caught:
        fit(f, y)
    assert "\n" not in str(caught.value)


def test_a_row_of_each_class_leaves_a_temperature():
    f, y = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
    fitted = vector_scaling(f, y)
    assert torch.equal(fitted.weight, matrix_scaling(f, y).weight)
    assert fitted.penalties == (math.inf, math.inf)
    torch.testing.assert_close(fitted.logits(f), (f / careful_temperature(f.unsqueeze(0), y)).double())
