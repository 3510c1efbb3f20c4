"""The variance on the CPU against float64: its error is at most twice that of the plain one in float32."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from sgpa.gp.fused import blocked_variance, variance_cpu
from sgpa.gp.posteriors import marginal_variance


def problem(B, H, T, M, V, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype)

    A = normal(B, H, M, T) / M**0.5
    s = (0.3 * normal(H, V, M, M)).tril()
    kqq = A.square().sum(-2) + 0.1 * normal(B, H, T)  # some of the variance is explained, some not
    return [kqq, A, s, normal(B, H, T, V)]


def passes(function, kqq, A, s, g):
    leaves = [x.detach().clone().requires_grad_() for x in (kqq, A, s)]
    out = function(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, g)]


def errors(function, given):
    exact = passes(marginal_variance, *(x.double() for x in given))
    return [
        float((x - y).abs().max() / y.abs().max().clamp_min(1))
        for x, y in zip(passes(function, *given), exact, strict=True)
    ]


def check(given):
    for blocked, plain in zip(errors(blocked_variance, given), errors(marginal_variance, given), strict=True):
        assert blocked <= 2 * plain + 5e-7


sizes = st.tuples(*(st.integers(1, n) for n in (4, 3, 40, 37, 20)))


@settings(max_examples=40, deadline=None)
@given(sizes, st.integers(0, 99), st.sampled_from([1, 100, 3000, variance_cpu.BLOCK]))
def test_outputs_and_gradients_are_as_accurate_as_the_plain_ones(size, seed, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(variance_cpu, "BLOCK", block)  # several tokens, one head, or several heads at a time
        check(problem(*size, seed))


@pytest.mark.parametrize("size", [(7, 4, 64, 32, 32), (50, 4, 16, 8, 16), (2, 3, 130, 50, 10)])
def test_sizes_of_the_papers_models_are_as_accurate_as_the_plain_ones(size):
    check(problem(*size))


def test_an_empty_batch_has_an_empty_variance():
    out = passes(blocked_variance, *problem(0, 2, 5, 3, 4))
    assert out[0].shape == (0, 2, 5, 4)
    assert (out[3] == 0).all()


def test_an_explained_variance_above_the_prior_has_no_gradient():
    _, A, s, g = problem(2, 2, 5, 9, 4, dtype=torch.float64)
    given = (0.9 * A.square().sum(-2), A, s, g)
    for blocked, plain in zip(
        passes(blocked_variance, *given), passes(marginal_variance, *given), strict=True
    ):
        assert torch.allclose(blocked, plain, rtol=1e-12, atol=1e-12)
    assert (passes(blocked_variance, *given)[1] == 0).all()


@pytest.mark.parametrize("size", [(2, 2, 3, 4, 3), (1, 1, 2, 11, 2)])
def test_derivatives_equal_finite_differences(size):
    leaves = [x.requires_grad_() for x in problem(*size, dtype=torch.float64)[:3]]
    assert torch.autograd.gradcheck(blocked_variance, leaves)


def test_operators_pass_torchs_operator_checks():
    kqq, A, s, g = (x.requires_grad_() for x in problem(2, 2, 5, 9, 4))
    S = (s @ s.mT).detach().requires_grad_()
    rules = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(variance_cpu._variance, (kqq, A, S))
    torch.library.opcheck(variance_cpu._gradient, (kqq, A, S, g), test_utils=rules)


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_a_step_can_be_traced(mode):
    def step(*given):
        leaves = [x.detach().requires_grad_() for x in given]
        out = blocked_variance(*leaves)
        return out.detach(), *torch.autograd.grad(out.square().sum(), leaves)

    traced = make_fx(step, tracing_mode=mode)(*problem(2, 2, 9, 11, 4)[:3])
    targets = [str(node.target) for node in traced.graph.nodes]
    assert targets.count("sgpa.variance_cpu.default") == 1
    assert targets.count("sgpa.variance_cpu_gradient.default") == 1
    other = problem(2, 2, 9, 11, 4, seed=7)[:3]  # other numbers than those traced
    for a, b in zip(traced(*other), step(*other), strict=True):
        assert torch.equal(a, b)


def test_second_derivatives_raise_an_error():
    kqq, A, s, _ = problem(1, 1, 4, 3, 2)
    A.requires_grad_()
    (first,) = torch.autograd.grad(blocked_variance(kqq, A, s).sum(), A, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative"):
        first.sum().backward()
