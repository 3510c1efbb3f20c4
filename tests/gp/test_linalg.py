from contextlib import nullcontext, suppress
from itertools import pairwise

import pytest
import torch

from sgpa.core.errors import NumericalError
from sgpa.core.precision import matrix_units, require_finite, unchecked
from sgpa.gp.linalg import JITTERS, cholesky, inverse_factor, triangular_inverse


def gram(*batch, M=5):
    X = torch.randn(*batch, M, M, dtype=torch.float64)
    return X @ X.mT + M * torch.eye(M, dtype=torch.float64)


def jitter_of(L, K):
    # what was added to the diagonal, relative to it
    added = (L @ L.mT - K).diagonal(dim1=-2, dim2=-1)
    return added / K.diagonal(dim1=-2, dim2=-1)


def close_points(gap):
    # two points whose Gram matrix has the negative eigenvalue -gap, as rounding may produce
    return torch.tensor([[1.0, 1.0 + gap], [1.0 + gap, 1.0]], dtype=torch.float64)


def place(index):
    return f"layer {index[0] + 1}, head {index[1] + 1}"


def test_the_factor_reproduces_a_well_conditioned_matrix():
    torch.manual_seed(0)
    K = gram(3, 2)
    L = cholesky(K, "K")
    assert torch.equal(L, L.tril())
    torch.testing.assert_close(L @ L.mT, K + JITTERS[0] * torch.diag_embed(K.diagonal(dim1=-2, dim2=-1)))


def test_float32_is_factorised_in_float64():
    torch.manual_seed(0)
    K = gram().float()
    assert cholesky(K, "K").dtype == torch.float64
    assert torch.equal(cholesky(K, "K"), cholesky(K.double(), "K"))


def test_duplicated_points_succeed_with_the_smallest_jitter():
    K = torch.ones(4, 6, 6)
    L = cholesky(K, "K")
    torch.testing.assert_close(
        jitter_of(L, K.double()), torch.full((4, 6), JITTERS[0], dtype=torch.float64), rtol=1e-4, atol=0
    )


@pytest.mark.parametrize(("lower", "upper"), list(pairwise(JITTERS)))
def test_the_smallest_jitter_that_works_is_used(lower, upper):
    K = close_points(2 * lower)
    torch.testing.assert_close(
        jitter_of(cholesky(K, "K"), K), torch.full((2,), upper).double(), rtol=1e-6, atol=0
    )


def test_only_the_matrices_that_fail_get_more_jitter():
    torch.manual_seed(0)
    good = gram(M=2)
    K = torch.stack([good, close_points(2e-4), close_points(2e-6), good])
    L = cholesky(K, "K")
    assert torch.equal(L[0], cholesky(good, "K"))
    assert torch.equal(L[3], L[0])
    expected = torch.tensor([1e-6, 1e-3, 1e-5, 1e-6], dtype=torch.float64)
    torch.testing.assert_close(jitter_of(L, K)[:, 0], expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("factor", [1e6, 1e-6])
def test_factor_scales_with_the_matrix(factor):
    torch.manual_seed(0)
    for K in (gram(3), torch.ones(2, 4, 4, dtype=torch.float64), close_points(2e-4)):
        torch.testing.assert_close(
            cholesky(factor * K, "K"), factor**0.5 * cholesky(K, "K"), rtol=1e-9, atol=0
        )


def test_each_point_gets_jitter_in_proportion_to_its_own_variance():
    # an exponential kernel's diagonal spans orders of magnitude: no point may drown another
    torch.manual_seed(0)
    d = torch.tensor([1e-4, 1.0, 1e4, 1.0, 1.0], dtype=torch.float64)
    K = d[:, None] * gram() * d
    torch.testing.assert_close(
        jitter_of(cholesky(K, "K"), K), torch.full((5,), JITTERS[0]).double(), rtol=1e-6, atol=0
    )


def test_jitter_is_relative_to_a_given_scale():
    # a difference of two Gram matrices may have a diagonal of zero
    K, scale = torch.zeros(2, 3, 3), torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    L = cholesky(K, "K", scale=scale)
    torch.testing.assert_close(L @ L.mT, JITTERS[0] * torch.diag_embed(scale.double()), rtol=1e-6, atol=0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_entries_that_are_not_finite_are_named(bad):
    K = torch.eye(3).repeat(2, 2, 1, 1)
    K[1, 0, 2, 1] = bad
    with pytest.raises(NumericalError) as error:
        cholesky(K, "K_gg", place)
    message = str(error.value)
    assert message.startswith("layer 2, head 1: K_gg")
    assert "not finite" in message
    assert "\n" not in message
    # the reader must learn that no jitter can help
    assert "jitter" in message


def test_indefinite_matrix_is_named_with_the_last_jitter():
    K = torch.eye(3).repeat(2, 2, 1, 1)
    K[0, 1, 2, 2] = -1
    with pytest.raises(NumericalError) as error:
        cholesky(K, "K_gg", place)
    message = str(error.value)
    assert message.startswith("layer 1, head 2: K_gg is not positive definite")
    assert "jitter 0.01" in message
    assert "length-scales" in message  # what to change
    assert "\n" not in message


def test_a_matrix_that_no_jitter_makes_definite_raises():
    with pytest.raises(NumericalError, match="not positive definite"):
        cholesky(close_points(2 * JITTERS[-1]), "K")


def test_gradient_equals_finite_differences():
    torch.manual_seed(0)
    K = gram(2, M=3).requires_grad_()

    def factor(K):
        return cholesky(0.5 * (K + K.mT), "K")  # gradcheck moves one entry, cholesky reads one triangle

    assert torch.autograd.gradcheck(factor, K)


def test_gradient_is_finite_for_duplicated_points():
    K = torch.ones(4, 4, requires_grad=True)
    triangular_inverse(cholesky(K, "K")).sum().backward()
    assert K.grad.isfinite().all()


def test_triangular_inverse_times_its_factor_is_the_identity():
    torch.manual_seed(0)
    L = torch.linalg.cholesky(gram(2, 3))
    inverse = triangular_inverse(L)
    assert torch.equal(inverse, inverse.tril())
    torch.testing.assert_close(inverse @ L, torch.eye(5, dtype=torch.float64).expand(2, 3, 5, 5))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_require_finite_raises_unless_all_entries_are_finite(bad):
    require_finite(lambda: "fine", torch.ones(3))
    with pytest.raises(NumericalError, match="too large"):
        require_finite(lambda: "too large", torch.ones(3), torch.tensor([1.0, bad]))


def jittered(K):
    """L and L^-1 of K plus the smallest jitter, in proportion to its diagonal, by autograd throughout."""
    L = torch.linalg.cholesky(K + JITTERS[0] * torch.diag_embed(K.diagonal(dim1=-2, dim2=-1)))
    return L, torch.linalg.inv(L)


def symmetric(X):
    return X @ X.mT + 0.1 * torch.eye(X.shape[-1], dtype=X.dtype)


@pytest.mark.parametrize("checked", [True, False])
def test_the_factor_and_its_inverse_have_the_derivatives_of_autograd(checked):
    torch.manual_seed(0)
    X = torch.randn(2, 3, 6, 6, dtype=torch.float64, requires_grad=True)
    given = torch.randn(2, 2, 3, 6, 6, dtype=torch.float64)
    with nullcontext() if checked else unchecked():
        ours = inverse_factor(symmetric(X), "K")
    for a, b in zip(ours, jittered(symmetric(X)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    for asked in ((0,), (1,), (0, 1)):  # either, and both
        gradients = [
            torch.autograd.grad([out[i] for i in asked], X, [given[i] for i in asked], retain_graph=True)[0]
            for out in (ours, jittered(symmetric(X)))
        ]
        torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-8)


def test_the_factors_derivatives_equal_finite_differences():
    torch.manual_seed(0)
    X = torch.randn(2, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda X: tuple(y.tril() for y in inverse_factor(symmetric(X), "K")), (X,)
    )


def test_matrix_units_are_reset_after_the_block():
    for outer in (True, False):
        with matrix_units(outer):
            with suppress(ZeroDivisionError), matrix_units(not outer):
                assert torch.backends.cuda.matmul.allow_tf32 != outer
                raise ZeroDivisionError
            assert torch.backends.cuda.matmul.allow_tf32 == outer
