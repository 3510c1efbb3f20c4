# Float32 layers far from the origin, with near-duplicate keys and extreme length-scales, against float64.

import copy

import pytest
import torch

from sgpa.attention import ChengBootsSgpa, KernelAttention, OrthogonalSgpa, StandardSgpa
from sgpa.attention.precise import loses_precision
from sgpa.core.errors import NumericalError
from sgpa.core.types import Kl
from sgpa.gp.kernels import ArdRbfKernel, ExponentialKernel

E, H, M, T = 16, 2, 8, 12
SHIFTS, DUPLICATES, LENGTHSCALES = (0.0, 1.0, 30.0, 300.0), (0.0, 1e-4, 1e-2), (1e-2, 0.1, 1.0, 4.0, 30.0)
FORMS = (
    (OrthogonalSgpa, {"init": "small"}),
    (OrthogonalSgpa, {"init": "paper"}),
    (OrthogonalSgpa, {"init": "paper", "whitened": False}),
    (ChengBootsSgpa, {"init": "paper"}),
    (StandardSgpa, {}),
)


def hostile_layer(seed):
    """A layer, its inputs [3, T, E] and what they are."""
    torch.manual_seed(seed)
    shift, distance, lengthscale, (form, options), tied = (
        choices[int(torch.randint(len(choices), ()))]
        for choices in (SHIFTS, DUPLICATES, LENGTHSCALES, FORMS, (True, True, False))
    )
    kernel = ArdRbfKernel(H, E // H, lengthscale=lengthscale)
    x = shift + torch.randn(3, T, E)
    if distance:
        x[:, T // 2 :] = x[:, : T // 2] + distance * torch.randn(3, T // 2, E)
    if form is StandardSgpa:
        layer = form(E, H, kernel, max_tokens=T, tied=tied)
    else:
        layer = form(E, H, kernel, num_global=M, tied=tied, **options)
        layer.init_on_data(x.flatten(0, 1))
        with torch.no_grad():
            layer.Z_g[:, M // 2 :] = layer.Z_g[:, : M // 2] + distance * torch.randn(H, M // 2, E)
    return layer, x, f"seed {seed}: {form.__name__} {options}, x + {shift:g}, {distance:g}, ℓ {lengthscale:g}"


def test_hundred_hostile_layers_equal_float64_or_raise():
    refused = 0
    for seed in range(100):
        layer, x, about = hostile_layer(seed)
        try:
            output = layer(x, samples=2)
        except NumericalError:
            refused += 1
            continue
        with torch.no_grad():
            low = layer.moments(x, None)
            exact = copy.deepcopy(layer).double().moments(x.double(), None)
        assert output.value.isfinite().all(), about
        assert low.kl.a.isfinite().all(), about
        assert low.kl.g.isfinite(), about
        prior = layer.kernel.log_variance.exp().max()
        error = (low.variance - exact.variance).abs() / exact.variance.clamp_min(prior)
        assert error.max() < 0.01, about
        assert ((low.kl.a - exact.kl.a).abs() <= 0.01 * exact.kl.a.abs() + 1e-3).all(), about
        assert low.kl.a.min() > -1e-3, about
        assert low.kl.g > -1e-3, about
    assert refused < 10  # a layer that always raises would pass


def test_ordinary_inputs_stay_in_float32():
    torch.manual_seed(0)
    layer, x = OrthogonalSgpa(E, H, ArdRbfKernel(H, E // H), num_global=M), torch.randn(3, T, E)
    state, (q, _, _) = layer.global_state(), layer.projected(x)
    assert not loses_precision(state, state.k_g, q)
    assert loses_precision(state, state.k_g, q + 300)


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
    for target in range(60, 95):
        torch.manual_seed(target)
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
        assert x.grad.isfinite().all(), f"exponent {target}"
        finite += 1
    assert raised
    assert finite
