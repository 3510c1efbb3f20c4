# Float32 layers far from the origin, with near-duplicate keys and extreme length-scales, against float64.

import copy
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from sgpa.attention import (
    ChengBootsSgpa,
    KernelAttention,
    MultiheadSgpa,
    OrthogonalSgpa,
    StandardSgpa,
    precise,
)
from sgpa.attention.global_state import plain_states
from sgpa.attention.precise import count_clamped, loses_precision
from sgpa.core.counters import FLOAT64_PASSES, KL_BELOW_ZERO, STEPS_NEED_FLOAT64, VARIANCE_CLAMPED, counting
from sgpa.core.errors import NumericalError
from sgpa.core.types import Kl
from sgpa.gp.kernels import ArdRbfKernel, ExponentialKernel
from support.hostile_layers import E, H, M, T, measure, measure_multihead


def test_hostile_multihead_layers_with_masks_equal_float64():
    measured = [measure_multihead(seed) for seed in range(40)]
    assert [each for each in measured if each.problem is not None] == []
    assert sum(each.refused for each in measured) <= 4


def test_fifty_hostile_layers_equal_float64_or_raise():
    refused = 0
    for seed in range(50):
        measured = measure(seed)
        assert measured.problem is None, measured
        refused += measured.refused
    assert refused < 5  # a layer that always raises would pass


def test_ordinary_inputs_stay_in_float32():
    torch.manual_seed(0)
    layer, x = OrthogonalSgpa(E, H, ArdRbfKernel(H, E // H), num_global=M), torch.randn(3, T, E)
    state, (q, _, _) = layer.global_state(), layer.projected(x)
    assert not loses_precision(layer.kernel, state, q)
    assert loses_precision(layer.kernel, state, q + 300)


def test_a_layer_whose_error_is_only_bounded_badly_stays_in_float32():
    """The bound multiplies the norm of the farthest point by an entry of L^-1 of keys far from it."""
    torch.manual_seed(0)
    kernel, D = ArdRbfKernel(H, E // H), E // H
    layer = OrthogonalSgpa(E, H, kernel, num_global=M)
    near, far = 0.1 * torch.randn(1, H, 5 * T, D), torch.randn(1, H, T, D) + 20
    keys = torch.cat([near[0, :, : M - 1], far[0, :, :1]], 1)  # close keys near the origin, one far away
    states = plain_states(
        [layer], keys[None], kernel.log_variance[None], layer.raw_s_g[None], layer.v_g[None]
    )
    q = torch.cat([near, far], 2)
    bound = q.square().sum(-1).max() * states[0].L_inv.abs().max() * torch.finfo(torch.float32).eps
    assert bound > precise.LARGEST_ERROR
    assert not loses_precision(kernel, states[0], q)


@pytest.mark.parametrize("form", [OrthogonalSgpa, ChengBootsSgpa])
def test_gradients_far_from_the_origin_equal_float64(form):
    torch.manual_seed(0)
    layer, x = form(E, H, ArdRbfKernel(H, E // H), num_global=M), 300 + torch.randn(3, T, E)
    layer.init_on_data(x.flatten(0, 1))
    exact = copy.deepcopy(layer).double()
    for each, inputs in ((layer, x), (exact, x.double())):
        moments = each.moments(inputs, None)
        (moments.variance.sum() + moments.mean.square().sum() + moments.kl.a.sum()).backward()
    for name, p in exact.named_parameters():
        if p.grad is not None:
            low = dict(layer.named_parameters())[name].grad
            assert (low - p.grad).abs().max() <= 1e-4 * p.grad.abs().max(), name


@pytest.mark.parametrize("form", [OrthogonalSgpa, ChengBootsSgpa, StandardSgpa])
@pytest.mark.parametrize("padded", [False, True])
def test_float64_passes_of_predictions_have_bounded_memory(form, padded, monkeypatch):
    torch.manual_seed(0)
    sizes = {"max_tokens": T} if form is StandardSgpa else {"num_global": M}
    layer, x = form(E, H, ArdRbfKernel(H, E // H), **sizes), 300 + torch.randn(7, T, E)
    padding = torch.arange(T).expand(7, T) >= torch.arange(7)[:, None] + 5 if padded else None
    rows = []
    inner = precise._Moments.forward
    monkeypatch.setattr(
        precise._Moments, "forward", lambda *given: rows.append(len(given[1])) or inner(*given)
    )
    with torch.no_grad():
        whole = layer.moments(x, padding)
        monkeypatch.setattr(precise, "ENTRIES", 3 * T * E * sizes.get("num_global", T))
        parts = layer.moments(x, padding)
    assert rows == [7, 3, 3, 1]
    for name in ("mean", "variance"):
        torch.testing.assert_close(getattr(parts, name), getattr(whole, name), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(parts.kl.a, whole.kl.a, rtol=1e-5, atol=1e-5)
    assert torch.equal(parts.kl.g, whole.kl.g)
    assert type(parts) is type(whole)


@pytest.mark.parametrize("kl", [(-1.0, 1.0), (1.0, -1e4)])
def test_a_negative_kl_is_an_error_that_names_the_layer(kl):
    layer = OrthogonalSgpa(E, H, ArdRbfKernel(H, E // H), num_global=M)
    layer.name = "layer 3"
    g, a = torch.tensor(kl[0]), torch.full((2,), kl[1])
    with pytest.raises(NumericalError, match=r"layer 3: its KL is negative beyond rounding"):
        layer.check_kl(Kl(g, a), torch.randn(2, T, E))


def test_a_kl_that_is_negative_by_rounding_is_accepted():
    layer = OrthogonalSgpa(E, H, ArdRbfKernel(H, E // H), num_global=M)
    layer.check_kl(Kl(torch.tensor(-1e-6), torch.full((2,), -1e-5)), torch.randn(2, T, E))


@pytest.mark.parametrize("form", [KernelAttention, OrthogonalSgpa])
def test_exponents_whose_gradient_overflows_are_an_error(form):
    options = {} if form is KernelAttention else {"num_global": M}
    raised = finite = 0
    for number in range(300):
        target = 60 + 0.1 * number
        torch.manual_seed(number)
        layer = form(E, H, ExponentialKernel(H, E // H), **options)
        layer.name = "layer 3"
        x = torch.randn(1, 3, E)
        _, k, _ = layer.projected(x)
        x = (x * (target / k.square().sum(-1).max()).sqrt()).detach().requires_grad_()
        try:
            output = layer(x)
        except NumericalError as error:
            raised += "layer 3: " in str(error)
            continue
        (output.value.sum() + output.kl.a.sum()).backward()
        gradients = [x.grad, *(p.grad for p in layer.parameters() if p.grad is not None)]
        assert all(gradient.isfinite().all() for gradient in gradients), f"exponent {target}"
        finite += 1
    assert raised
    assert finite


def test_a_learned_covariance_that_overflows_is_not_blamed_on_the_kernel():
    layer = OrthogonalSgpa(E, H, ArdRbfKernel(H, E // H), num_global=M)
    with torch.no_grad():
        layer.raw_s_g.fill_(200.0)
    with pytest.raises(NumericalError, match="its variance or its KL is not finite although K_qk is"):
        layer(torch.randn(2, T, E))


@pytest.mark.parametrize(("exponent", "refused"), [(70, False), (83, True)])
def test_operators_that_form_no_matrix_check_exponents(exponent, refused):
    layer = KernelAttention(E, H, ExponentialKernel(H, E // H))
    k = torch.zeros(1, H, 2, E // H)
    k[..., 0] = exponent**0.5
    with pytest.raises(NumericalError, match="K_qk overflowed") if refused else nullcontext():
        layer.check_overflow(k)


@pytest.mark.parametrize("masked", [False, True])
def test_kernel_attention_far_from_the_origin_equals_float64(masked):
    torch.manual_seed(0)
    layer, x = KernelAttention(E, H, ArdRbfKernel(H, E // H)), 1000 + torch.randn(3, T, E)
    with counting() as counted:
        value = layer(x, is_causal=masked).value
    exact = copy.deepcopy(layer).double()(x.double(), is_causal=masked).value
    assert counted == {FLOAT64_PASSES: 1, STEPS_NEED_FLOAT64: 1}
    assert (value - exact).abs().max() < 1e-4 * exact.abs().max()


def test_cross_attention_far_from_the_origin_equals_float64():
    torch.manual_seed(0)
    layer = MultiheadSgpa(E, H, batch_first=True, num_global=M).eval()
    q, k = (600 + torch.randn(3, n, E) for n in (5, T))
    with counting() as counted:
        value, _ = layer(q, k, k)
    exact, _ = copy.deepcopy(layer).double()(q.double(), k.double(), k.double())
    assert counted[FLOAT64_PASSES] == 1
    assert (value - exact).abs().max() < 1e-4 * exact.abs().max()


def test_clamped_variances_and_kls_below_zero_are_counted():
    kqq, A = torch.ones(1, 1, 3), torch.tensor([[[[0.5, 1.0, 1.1]]]])  # K_qq - A'A: 0.75, 0, -0.21
    with counting() as counted:
        count_clamped(kqq, A)
    assert counted == {VARIANCE_CLAMPED: 1}
    layer = OrthogonalSgpa(E, H, ArdRbfKernel(H, E // H), num_global=M)
    state = layer.global_state()
    with counting() as counted:
        layer.moments(layer.Z_g[0].detach().unsqueeze(0), None, replace(state, L_inv=3 * state.L_inv))
    assert counted[VARIANCE_CLAMPED]
    with counting() as counted:
        layer.check_kl(Kl(torch.tensor(-1e-6), torch.full((2,), 1.0)), torch.randn(2, T, E))
    assert counted == {KL_BELOW_ZERO: 1}


@pytest.mark.parametrize("seed", [1667, 2439, 3933])
def test_near_duplicates_at_150_length_scales_equal_float64(seed):
    measured = measure(seed)
    assert measured.problem is None
    assert measured.error < 2e-3
