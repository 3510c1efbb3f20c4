"""Fused operators against float64: their error is at most twice that of the plain version in float32."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sgpa.fused import fused_variance, fuses, variance
from sgpa.posteriors import marginal_variance, plain_variance

pytestmark = pytest.mark.skipif(variance.kernels is None, reason="Triton is not installed")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # on the CPU Triton's interpreter runs the kernels


def problem(B, H, T, M, V, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    A = normal(B, H, M, T) / M**0.5
    s = (0.3 * normal(H, V, M, M)).tril()
    kqq = A.square().sum(-2) + 0.1 * normal(B, H, T)  # some of the variance is explained, some not
    return [x.to(DEVICE) for x in (kqq, A, s, normal(B, H, T, V))]


def passes(function, kqq, A, s, g):
    leaves = [x.detach().clone().requires_grad_() for x in (kqq, A, s)]
    out = function(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, g)]


def errors(function, given):
    exact = passes(plain_variance, *(x.double() for x in given))
    return [
        float((x - y).abs().max() / y.abs().max().clamp_min(1e-3))
        for x, y in zip(passes(function, *given), exact, strict=True)
    ]


@settings(max_examples=8, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 70),
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(0, 9),
)
def test_outputs_and_gradients_are_as_good_as_the_plain_ones(B, H, T, M, V, seed):
    given = problem(B, H, T, M, V, seed)
    for fused, plain in zip(errors(fused_variance, given), errors(plain_variance, given), strict=True):
        assert fused <= 2 * plain + 5e-7


@pytest.mark.parametrize("shape", [(2, 2, 64, 32, 32), (1, 1, 130, 33, 17), (3, 1, 5, 50, 10)])
def test_sizes_of_the_papers_models(shape):
    given = problem(*shape)
    for fused, plain in zip(errors(fused_variance, given), errors(plain_variance, given), strict=True):
        assert fused <= 2 * plain + 5e-7


def test_models_side_by_side_are_more_heads():
    each = [problem(2, 2, 9, 5, 4, seed)[:3] for seed in range(3)]
    stacked = [torch.stack(parts) for parts in zip(*each, strict=True)]
    leaves = [x.clone().requires_grad_() for x in stacked]
    together = torch.vmap(fused_variance)(*leaves)
    gradients = torch.autograd.grad(together.square().sum(), leaves)
    for e in range(3):
        own = [x[e].clone().requires_grad_() for x in stacked]
        out = fused_variance(*own)
        assert torch.allclose(out, together[e], atol=1e-6)
        for a, b in zip(torch.autograd.grad(out.square().sum(), own), gradients, strict=True):
            assert torch.allclose(a, b[e], atol=1e-5)


def test_the_plain_way_is_taken_where_there_is_no_gpu_and_in_float64():
    kqq, A, s, _ = problem(2, 2, 9, 5, 4)
    assert fuses(A, s) == (DEVICE == "cuda")
    assert not fuses(A.double(), s.double())
    assert not fuses(A, s.expand(2, *s.shape))
    assert torch.allclose(marginal_variance(kqq, A, s), plain_variance(kqq, A, s), atol=1e-5)


def test_there_is_no_second_derivative_and_it_says_so():
    kqq, A, s, _ = problem(1, 1, 4, 3, 2)
    A.requires_grad_()
    (first,) = torch.autograd.grad(fused_variance(kqq, A, s).sum(), A, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative"):
        first.sum().backward()
