"""The variance on the CPU against float64: its error is at most twice that of the plain one in float32."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from sgpa.gp.fused import blocked_variance, blocks_take, variance_cpu
from sgpa.gp.posteriors import marginal_variance, plain_variance


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
    exact = passes(plain_variance, *(x.double() for x in given))
    return [
        float((x - y).abs().max() / y.abs().max().clamp_min(1))
        for x, y in zip(passes(function, *given), exact, strict=True)
    ]


def check(given):
    for blocked, plain in zip(errors(blocked_variance, given), errors(plain_variance, given), strict=True):
        assert blocked <= 2 * plain + 5e-7


sizes = st.tuples(*(st.integers(1, n) for n in (4, 3, 40, 37, 20)))


@settings(max_examples=40, deadline=None)
@given(sizes, st.integers(0, 99), st.sampled_from([1, 100, 3000, variance_cpu.BLOCK]))
def test_outputs_and_gradients_are_as_good_as_the_plain_ones(size, seed, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(variance_cpu, "BLOCK", block)  # several tokens, one head, or several heads at a time
        check(problem(*size, seed))


@pytest.mark.parametrize("size", [(7, 4, 64, 32, 32), (50, 4, 16, 8, 16), (2, 3, 130, 50, 10)])
def test_sizes_of_the_papers_models(size):
    check(problem(*size))


def test_no_sequences_have_no_variances():
    out = passes(blocked_variance, *problem(0, 2, 5, 3, 4))
    assert out[0].shape == (0, 2, 5, 4)
    assert (out[3] == 0).all()


def test_what_rounding_explains_too_much_has_no_gradient():
    _, A, s, g = problem(2, 2, 5, 9, 4, dtype=torch.float64)
    given = (0.9 * A.square().sum(-2), A, s, g)
    for blocked, plain in zip(passes(blocked_variance, *given), passes(plain_variance, *given), strict=True):
        assert torch.allclose(blocked, plain, rtol=1e-12, atol=1e-12)
    assert (passes(blocked_variance, *given)[1] == 0).all()


@pytest.mark.parametrize("size", [(2, 2, 3, 4, 3), (1, 1, 2, 11, 2)])
def test_derivatives_against_finite_differences(size):
    leaves = [x.requires_grad_() for x in problem(*size, dtype=torch.float64)[:3]]
    assert torch.autograd.gradcheck(blocked_variance, leaves)


def test_the_operators_keep_the_rules_of_torch():
    kqq, A, s, g = (x.requires_grad_() for x in problem(2, 2, 5, 9, 4))
    S = (s @ s.mT).detach().requires_grad_()
    rules = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(variance_cpu._variance, (kqq, A, S))
    torch.library.opcheck(variance_cpu._gradient, (kqq, A, S, g), test_utils=rules)


@pytest.mark.parametrize("dims", [(0, 0, 0), (0, 1, None), (None, 0, 2)])
def test_models_side_by_side_are_more_heads(dims):
    E = 3
    each = [problem(2, 2, 9, 11, 4, seed, torch.float64)[:3] for seed in range(E)]
    given = [
        parts[0] if dim is None else torch.stack(parts, dim)
        for parts, dim in zip(zip(*each, strict=True), dims, strict=True)
    ]
    leaves = [x.clone().requires_grad_() for x in given]
    together = torch.vmap(blocked_variance, dims)(*leaves)
    gradients = torch.autograd.grad(together.square().sum(), leaves)
    own = [x.clone().requires_grad_() for x in given]
    members = [[x if d is None else x.select(d, e) for x, d in zip(own, dims, strict=True)] for e in range(E)]
    in_turn = torch.stack([blocked_variance(*member) for member in members])
    assert torch.allclose(together, in_turn)
    for a, b in zip(gradients, torch.autograd.grad(in_turn.square().sum(), own), strict=True):
        assert torch.allclose(a, b)


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_a_step_can_be_traced(mode):
    def step(*given):
        leaves = [x.detach().requires_grad_() for x in given]
        out = torch.vmap(blocked_variance)(*leaves)
        return out.detach(), *torch.autograd.grad(out.square().sum(), leaves)

    def stacked(first):
        each = [problem(2, 2, 9, 11, 4, seed)[:3] for seed in range(first, first + 3)]
        return [torch.stack(parts) for parts in zip(*each, strict=True)]

    traced = make_fx(step, tracing_mode=mode)(*stacked(0))
    targets = [str(node.target) for node in traced.graph.nodes]
    assert targets.count("sgpa.variance_cpu.default") == 1
    assert targets.count("sgpa.variance_cpu_gradient.default") == 1
    for a, b in zip(traced(*stacked(7)), step(*stacked(7)), strict=True):  # other numbers than those traced
        assert torch.equal(a, b)


def test_which_way_is_taken():
    kqq, A, s, _ = problem(2, 2, 9, 5, 4)
    assert blocks_take(A, s)
    assert blocks_take(A.double(), s.double())
    assert not blocks_take(A.bfloat16(), s.bfloat16())
    assert not blocks_take(A.double(), s)
    assert not blocks_take(A, s.expand(2, *s.shape))  # every sequence has its own factor
    assert not blocks_take(A.to("meta"), s.to("meta"))
    assert torch.equal(marginal_variance(kqq, A, s), blocked_variance(kqq, A, s))


def test_there_is_no_second_derivative_and_it_says_so():
    kqq, A, s, _ = problem(1, 1, 4, 3, 2)
    A.requires_grad_()
    (first,) = torch.autograd.grad(blocked_variance(kqq, A, s).sum(), A, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative"):
        first.sum().backward()
