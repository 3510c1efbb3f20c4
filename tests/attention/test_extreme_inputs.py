# Extreme inputs in float32: a layer gives finite numbers or an error that names the matrix.

from itertools import product

import pytest
import torch

from sgpa.attention import ChengBootsSgpa, DotProductAttention, KernelAttention, OrthogonalSgpa, StandardSgpa
from sgpa.core.errors import NumericalError
from sgpa.gp.kernels import ArdRbfKernel, ExponentialKernel

E, H, D, M = 16, 2, 8, 8
DECOUPLED = {"num_global": M, "init": "paper"}
LAYERS = {
    "kernel": (KernelAttention, {}),
    "kernel-untied": (KernelAttention, {"tied": False}),
    "orthogonal": (OrthogonalSgpa, DECOUPLED),
    "orthogonal-untied": (OrthogonalSgpa, DECOUPLED | {"tied": False}),
    "orthogonal-free": (OrthogonalSgpa, DECOUPLED | {"whitened": False}),
    "orthogonal-joint": (OrthogonalSgpa, DECOUPLED | {"joint": True}),
    "cheng-boots": (ChengBootsSgpa, DECOUPLED),
    "standard": (StandardSgpa, {}),
    "standard-untied": (StandardSgpa, {"tied": False}),
    "standard-free": (StandardSgpa, {"whitened": False}),
    "standard-joint": (StandardSgpa, {"joint": True}),
}
LENGTHSCALES, VARIANCES = (1e-3, 1.0, 1e3), (1e-6, 1.0, 1e6)

layers = pytest.mark.parametrize("name", LAYERS)
kernels = pytest.mark.parametrize("kernel_class", [ArdRbfKernel, ExponentialKernel])


def make(name, kernel_class, T, lengthscale=1.0, variance=1.0):
    torch.manual_seed(0)
    layer_class, options = LAYERS[name]
    if layer_class is StandardSgpa:
        options = options | {"max_tokens": T}
    kernel = kernel_class(H, D, variance=variance, lengthscale=lengthscale)
    layer = layer_class(E, H, kernel, **options)
    layer.name = "layer 3"
    return layer, torch.randn(1 if T > 1 else 2, T, E)


def attempt(layer, x):
    try:
        return layer(x, samples=2)
    except NumericalError as error:
        return error


def check(layer, x, condition):
    x = x.clone().requires_grad_()
    output = attempt(layer, x)
    if isinstance(output, NumericalError):
        for word in ("layer 3", "K_", "jitter"):
            assert word in str(output), f"{condition}: no '{word}' in: {output}"
        assert "\n" not in str(output)
        return
    assert output.value.isfinite().all(), condition
    assert output.kl.g.isfinite(), condition
    assert output.kl.a.isfinite().all(), condition
    (output.value.square().mean() + output.kl.g + output.kl.a.mean()).backward()
    for parameter, tensor in [("x", x), *layer.named_parameters()]:
        if tensor.requires_grad:
            assert tensor.grad.isfinite().all(), f"{condition}: gradient of {parameter}"


@layers
@kernels
@pytest.mark.parametrize("T", [1, 1024])
def test_extreme_kernel_parameters_give_finite_outputs_or_an_error(name, kernel_class, T):
    if T > 1 and name.startswith("standard"):
        T = 256  # its cost grows with T^3
    # a 1024 x 1024 factorisation per run: there the middle variance has to do
    variances = (1.0,) if T > 256 and name.endswith("joint") else VARIANCES
    for lengthscale, variance in product(LENGTHSCALES, variances):
        layer, x = make(name, kernel_class, T, lengthscale, variance)
        check(layer, x, f"length-scale {lengthscale:g}, variance {variance:g}")


@layers
@kernels
@pytest.mark.parametrize("lengthscale", LENGTHSCALES)
def test_equal_tokens_give_finite_outputs_or_an_error(name, kernel_class, lengthscale):
    # K_kk and K_qq - Q_qq are singular
    layer, x = make(name, kernel_class, 32, lengthscale)
    check(layer, x[:, :1].expand(-1, 32, -1), "equal tokens")


@pytest.mark.parametrize("name", [name for name in LAYERS if LAYERS[name][1].get("num_global")])
@kernels
@pytest.mark.parametrize("lengthscale", LENGTHSCALES)
def test_equal_global_points_give_finite_outputs_or_an_error(name, kernel_class, lengthscale):
    # K_gg is singular; every variance is tried because jitter has to follow it
    for T, variance in product((1, 1024), VARIANCES if not name.endswith("joint") else (1.0,)):
        layer, x = make(name, kernel_class, T, lengthscale, variance)
        with torch.no_grad():
            layer.Z_g.copy_(layer.Z_g[:, :1].expand_as(layer.Z_g))
        check(layer, x, f"equal Z_g, T {T}, variance {variance:g}")


@layers
def test_moderate_kernel_parameters_raise_no_error(name):
    # a layer that always raises would pass the other tests
    for lengthscale, variance in product((1.0, 1e3), VARIANCES):
        layer, x = make(name, ArdRbfKernel, 64, lengthscale, variance)
        layer(x)


@pytest.mark.parametrize("T", [1, 1024])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_extreme_inputs_of_dot_product_attention_give_finite_outputs(T, scale):
    torch.manual_seed(0)
    layer = DotProductAttention(E, H)
    check(layer, scale * torch.randn(2, T, E), f"scale {scale:g}")


@pytest.mark.parametrize("name", ["orthogonal", "orthogonal-untied", "standard-untied"])
def test_overflow_of_the_kl_is_an_error(name):
    # a length-scale at which the KL overflows for some tokens while the output does not
    refused = 0
    for seed in range(20):
        layer, _ = make(name, ExponentialKernel, 1, lengthscale=0.2)
        torch.manual_seed(seed)
        output = attempt(layer, torch.randn(1, 1, E))
        if isinstance(output, NumericalError):
            refused += 1
        else:
            assert output.kl.g.isfinite(), f"seed {seed}"
            assert output.kl.a.isfinite().all(), f"seed {seed}"
    assert refused > 0


@kernels
@pytest.mark.parametrize("lengthscale", LENGTHSCALES)
def test_kl_is_not_negative_beyond_rounding(kernel_class, lengthscale):
    # on the global keys themselves K_aa - K_ag K_gg^-1 K_ga is nearly zero: the KL is ½ v_a' K_aa v_a less
    # a nearly equal term, and its rounding error is relative to that
    for seed in range(10):
        layer, _ = make("orthogonal", kernel_class, M, lengthscale)
        torch.manual_seed(seed)
        x = torch.randn(1, M, E)
        layer.init_on_data(x[0])
        output = attempt(layer, x)
        if isinstance(output, NumericalError):
            assert kernel_class is ExponentialKernel, f"seed {seed}: {output}"  # it overflows
            continue
        _, k_a, v_a = layer.projected(x)
        kl, quadratic = output.kl.a, 0.5 * (v_a * (layer.kernel.between(k_a, k_a) @ v_a)).sum()
        assert (kl >= -1e-5 * quadratic).all(), (
            f"seed {seed}: KL {kl.item():.3g} from terms of {quadratic:.3g}"
        )
