"""The choice of a fast path, and layers and models on it."""

import logging
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from sgpa.attention import (
    ChengBootsSgpa,
    DotProductAttention,
    KernelAttention,
    OrthogonalSgpa,
    StandardSgpa,
    backend,
    global_states,
)
from sgpa.attention.masks import Mask
from sgpa.attention.moments import FusedMoments
from sgpa.core.errors import NumericalError
from sgpa.core.inputs import Batch
from sgpa.core.precision import unchecked
from sgpa.gp.fused import TRITON, WIDTH, pack
from sgpa.gp.kernels import ArdRbfKernel, ExponentialKernel
from sgpa.gp.objective import Progress
from support.training_runs import CONFIG, METHODS, SGPA, blobs

pytestmark = pytest.mark.gpu_too
KERNELS = {"rbf": ArdRbfKernel, "exponential": ExponentialKernel}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_triton = pytest.mark.skipif(not TRITON, reason="Triton is not installed")
on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="compares with the plain path of the CPU")


@pytest.fixture
def forced(monkeypatch):
    """Uses the Triton operators on a CPU too, where the interpreter runs them."""
    return lambda: monkeypatch.setattr(backend, "runs_triton", lambda x: x.dtype == torch.float32)


# -- the choice


def rbf(heads=2, width=6):
    return ArdRbfKernel(heads, width)


class OwnKernel(ArdRbfKernel):
    pass


WITHOUT_OPERATORS = {
    "standard": lambda: StandardSgpa(12, 2, rbf(), max_tokens=4),
    "joint": lambda: OrthogonalSgpa(12, 2, rbf(), num_global=3, joint=True),
    "untied": lambda: OrthogonalSgpa(12, 2, rbf(), num_global=3, tied=False),
    "untied kernel attention": lambda: KernelAttention(12, 2, rbf(), tied=False),
    "many inducing points": lambda: OrthogonalSgpa(12, 2, rbf(), num_global=WIDTH + 1),
    "wide heads": lambda: OrthogonalSgpa(WIDTH + 1, 1, rbf(1, WIDTH + 1), num_global=3),
    "wide heads, kernel attention": lambda: KernelAttention(WIDTH + 1, 1, rbf(1, WIDTH + 1)),
    "a user's own kernel": lambda: KernelAttention(12, 2, OwnKernel(2, 6)),
}
WITH_OPERATORS = {
    "kernel attention": lambda: KernelAttention(12, 2, rbf()),
    "the widest": lambda: OrthogonalSgpa(WIDTH, 1, rbf(1, WIDTH), num_global=WIDTH),
    "exponential": lambda: OrthogonalSgpa(12, 2, ExponentialKernel(2, 6), num_global=3),
    "cheng-boots": lambda: ChengBootsSgpa(12, 2, rbf(), num_global=3),
}


@pytest.mark.parametrize("name", WITHOUT_OPERATORS)
def test_layers_without_operators(name):
    assert not WITHOUT_OPERATORS[name]().controls_own_precision


@pytest.mark.parametrize("name", WITH_OPERATORS)
def test_layers_with_operators(name):
    assert WITH_OPERATORS[name]().controls_own_precision == TRITON


def test_softmax_attention_controls_its_own_precision():
    assert DotProductAttention(12, 2).controls_own_precision  # no product of it needs float32


@needs_triton
@on_cpu
@pytest.mark.parametrize("name", [name for name in WITHOUT_OPERATORS if name != "wide heads"])
def test_layers_without_operators_are_never_fused(forced, name):
    forced()
    layer = WITHOUT_OPERATORS[name]()
    moments = layer.moments(torch.randn(2, 4, layer.embed_dim), None)
    assert not isinstance(moments, FusedMoments)


def test_operators_are_for_float32_on_a_gpu():
    x = torch.zeros(2, 4, 12, device=DEVICE)
    assert backend.runs_triton(x) == x.is_cuda
    assert not backend.runs_triton(x.double())
    assert not backend.runs_triton(x.bfloat16())
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        assert backend.choose(x, True, 3, 4) is backend.PLAIN


def test_a_cpu_uses_the_blocked_variance_in_full_precision():
    x = torch.zeros(2, 4, 12)
    assert backend.choose(x, True, 3, 4) is backend.BLOCKED
    assert backend.choose(x.double(), False, 3, 4) is backend.BLOCKED
    assert backend.choose(x.bfloat16(), True, 3, 4) is backend.PLAIN
    assert backend.choose(x.to("meta"), True, 3, 4) is backend.PLAIN


@needs_triton
def test_a_gpu_fuses_the_variance_of_layers_that_fit_a_tile(forced):
    forced()
    x = torch.zeros(2, 4, 12)
    assert backend.choose(x, True, 3, 4) is backend.FUSED
    assert backend.choose(x, False, WIDTH, WIDTH) is backend.FUSED_VARIANCE
    assert backend.choose(x, False, WIDTH + 1, 4) is backend.PLAIN
    assert not backend.choose(x.double(), True, 3, 4).fused


@needs_triton
def test_masked_attention_does_not_use_the_fused_mean(forced):
    forced()
    x = torch.zeros(2, 4, 12)
    assert backend.choose(x, True, 3, 4, masked=True) is backend.FUSED_VARIANCE
    assert backend.choose(x, True, masked=True).fused is False


@on_cpu
@needs_triton
@pytest.mark.parametrize("layer_class", [KernelAttention, OrthogonalSgpa, ChengBootsSgpa])
def test_masked_attention_is_the_same_on_a_gpu(layer_class, forced):
    torch.manual_seed(0)
    options = {} if layer_class is KernelAttention else {"num_global": 3}
    layer, x = layer_class(12, 2, rbf(), **options), torch.randn(2, 5, 12)
    mask = Mask(torch.ones(5, 5, dtype=torch.bool).triu(1), causal=True)
    plain = layer.moments(x, None, None, mask)
    forced()
    other = layer.moments(x, None, None, mask)
    for one, two in zip(vars(plain.posterior).values(), vars(other.posterior).values(), strict=True):
        torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(other.kl.a, plain.kl.a, rtol=1e-4, atol=1e-5)


@needs_triton
def test_every_variance_is_the_plain_one():
    generator = torch.Generator(DEVICE).manual_seed(0)
    A, s = (torch.randn(shape, generator=generator, device=DEVICE) for shape in ((2, 2, 5, 9), (2, 4, 5, 5)))
    kqq = torch.full((2, 2, 9), 7.0, device=DEVICE)
    plain = backend.PLAIN.variance(kqq, A, s)
    others = [backend.FUSED_VARIANCE] if DEVICE == "cuda" else [backend.FUSED_VARIANCE, backend.BLOCKED]
    for other in others:
        torch.testing.assert_close(
            other.variance(kqq, A, s), plain, rtol=1e-2 if DEVICE == "cuda" else 1e-5, atol=1e-5
        )


# -- layers and models on the fast path


def layers(kernel):
    torch.manual_seed(0)
    kernels = [kernel(2, 6, variance=0.7, lengthscale=2.0) for _ in range(2)]
    positions = 0.3 * torch.randn(70, 2, 6)
    position_aware = OrthogonalSgpa(12, 2, kernels[1], num_global=5, init="paper", positions=positions)
    position_aware.init_on_data(torch.randn(9, 12), torch.arange(9))
    return {
        "kernel attention": KernelAttention(12, 2, kernels[0]),
        "sgpa": OrthogonalSgpa(12, 2, kernels[1], num_global=5, init="paper"),
        "position-aware sgpa": position_aware,
        "cheng-boots": ChengBootsSgpa(12, 2, kernels[1], num_global=5, init="paper"),
    }


def moments_and_gradients(layer, x, padding):
    x = x.clone().requires_grad_()
    moments = layer.moments(x.masked_fill(padding.unsqueeze(-1), 0.0), padding)
    out = [moments.mean, moments.posterior.variance, moments.kl.g, moments.kl.a]
    given = [torch.randn(y.shape, generator=torch.Generator().manual_seed(i)) for i, y in enumerate(out)]
    inputs = [x, *(p for p in layer.parameters() if p.requires_grad)]
    loss = sum((y * g).sum() for y, g in zip(out, given, strict=True))
    gradients = torch.autograd.grad(loss, inputs, allow_unused=True)
    names = ["x", *(name for name, p in layer.named_parameters() if p.requires_grad)]
    return dict(zip(["mean", "variance", "kl_g", "kl_a"], out, strict=True)) | {
        f"d{name}": g for name, g in zip(names, gradients, strict=True)
    }


def assert_same(plain, fused, rounding):
    for name, expected in plain.items():
        actual = fused[name]
        if expected is None:
            assert actual is None or not actual.any(), name
        else:
            error = (actual - expected).detach().abs().max() / expected.detach().abs().max().clamp_min(1)
            assert float(error) <= rounding, name


@needs_triton
@on_cpu
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("name", "T"),
    [
        ("kernel attention", 7),
        ("kernel attention", 70),  # more than a tile
        ("sgpa", 7),
        ("sgpa", 70),
        ("position-aware sgpa", 7),
        ("cheng-boots", 70),
    ],
)
def test_a_layer_on_its_fast_path_equals_the_plain_layer(forced, kernel, name, T):
    layer, x = layers(KERNELS[kernel])[name], 0.5 * torch.randn(2, T, 12)
    padding = torch.zeros(2, T, dtype=torch.bool)
    padding[1, T - 3 :] = True
    assert layer.controls_own_precision
    plain = moments_and_gradients(layer, x, padding)
    forced()
    assert_same(plain, moments_and_gradients(layer, x, padding), 2e-5)


@needs_triton
@on_cpu
@pytest.mark.parametrize("name", ["kernel-mle", "sgpa", "cheng-boots"])
def test_a_fused_step_of_a_model_equals_the_plain_step(forced, name):
    torch.manual_seed(0)
    method = METHODS[name]
    model, data = method.build(CONFIG), blobs(4, 0)

    def step():
        torch.manual_seed(1)
        with unchecked():
            loss = method.loss(model, Batch(data.inputs, data.targets), Progress(1.0, 100))
        names, parameters = zip(
            *((n, p) for n, p in model.named_parameters() if p.requires_grad), strict=True
        )
        gradients = torch.autograd.grad(loss.total, parameters, allow_unused=True)
        return {"nll": loss.nll, "kl_g": loss.kl_g, "kl_a": loss.kl_a} | dict(
            zip(names, gradients, strict=True)
        )

    plain = step()
    forced()
    assert_same(plain, step(), 1e-5)


@needs_triton
@on_cpu
@pytest.mark.parametrize("name", ["sgpa", "cheng-boots"])
def test_prediction_without_sampling_is_the_same_on_the_fast_path(forced, name):
    torch.manual_seed(0)
    model, inputs = METHODS[name].build(CONFIG).eval(), blobs(3, 0).inputs
    plain = model.moments(inputs)
    forced()
    for ours, expected in zip(model.moments(inputs), plain, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


@needs_triton
@pytest.mark.parametrize("name", KERNELS)
def test_fused_states_equal_the_plain_ones(forced, name):
    layers = [
        OrthogonalSgpa(8, 2, KERNELS[name](2, 4), num_global=3, init="paper").to(DEVICE) for _ in range(2)
    ]
    features = torch.stack([layer.Z_g for layer in layers])
    plain = global_states(layers, features)
    forced()
    ours = global_states(layers, features)
    leaves = [p for layer in layers for p in layer.parameters()]
    gradients_of_both = []
    for states in (plain, ours):
        total = sum(
            y.sum() for state in states for y in (state.k_g, state.L_inv, state.S, state.w_g, state.kl)
        )
        gradients_of_both.append(torch.autograd.grad(total, leaves, materialize_grads=True))
    for a, b in zip(*gradients_of_both, strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))
    for a, b, layer in zip(plain, ours, layers, strict=True):
        for field in ("k_g", "L_inv", "s_g", "S", "v_g", "w_g", "kl"):
            assert torch.allclose(getattr(a, field).float(), getattr(b, field), rtol=1e-5, atol=1e-6), field
        packed = pack(a.L_inv.float(), a.k_g, a.w_g, layer.kernel.log_variance)
        assert torch.allclose(b.packed, packed, rtol=1e-5, atol=1e-6)


@needs_triton
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter's square root
def test_fused_states_that_fail_are_computed_with_more_jitter_or_raise(forced, monkeypatch):
    forced()
    layer = OrthogonalSgpa(8, 2, ArdRbfKernel(2, 4), num_global=3).to(DEVICE)
    with monkeypatch.context() as smaller:
        # with this jitter no matrix is positive definite
        smaller.setattr("sgpa.attention.global_state.JITTERS", (-2.0,))
        (state,) = global_states([layer], layer.Z_g.unsqueeze(0))
        assert state.packed is None
        assert state.L_inv.isfinite().all()
        with unchecked():
            assert global_states([layer], layer.Z_g.unsqueeze(0))[0].kl.isnan()
    with torch.no_grad():
        layer.kernel.log_variance[1] = float("nan")
    with pytest.raises(NumericalError, match="head 2"):
        global_states([layer], layer.Z_g.unsqueeze(0))


# -- without Triton

WITHOUT = """
import sys
sys.modules["triton"] = None
import torch
torch.set_num_threads(1)
import sgpa.inference.serve
from safetensors.torch import load_file, save_file
from sgpa.gp.fused import TRITON
from test_backend import one_step
assert not TRITON
save_file(one_step(load_file(sys.argv[1])), sys.argv[2])
"""


def one_step(weights):
    """Loss, gradients and predictions of a small model with these weights."""
    model, data = SGPA.build(CONFIG), blobs(8, 0)
    model.load_state_dict(weights)
    assert all(layer.attention.controls_own_precision == TRITON for layer in model.gp_layers)
    torch.manual_seed(1)
    loss = SGPA.loss(model, Batch(data.inputs, data.targets), Progress(1.0, 100)).total
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(loss, list(named.values()))
    means, _ = model.eval().moments(data.inputs)
    return {"loss": loss.detach(), "means": means.contiguous()} | {
        f"gradient of {name}": g.contiguous() for name, g in zip(named, gradients, strict=True)
    }


def test_without_triton_a_step_has_the_same_loss_gradients_and_predictions(tmp_path):
    torch.manual_seed(0)
    weights = {name: x.contiguous() for name, x in SGPA.build(CONFIG).state_dict().items()}
    save_file(weights, tmp_path / "weights.safetensors")
    paths = [*sys.path, os.path.dirname(__file__)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    files = [str(tmp_path / name) for name in ("weights.safetensors", "step.safetensors")]
    subprocess.run([sys.executable, "-c", WITHOUT, *files], check=True, env=environment)
    step = load_file(files[1])
    for name, expected in one_step(weights).items():
        torch.testing.assert_close(step[name], expected, rtol=1e-4, atol=1e-5, msg=name)


def test_a_gpu_without_triton_is_warned_of_once(monkeypatch, caplog):
    backend.warn_without_triton.cache_clear()
    kernel, softmax = KernelAttention(12, 2, rbf()), DotProductAttention(12, 2)
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    monkeypatch.setattr(backend, "TRITON", True)
    backend.check_triton(kernel, gpu)
    monkeypatch.setattr(backend, "TRITON", False)
    backend.check_triton(kernel, cpu)
    backend.check_triton(softmax, gpu)
    assert not caplog.records
    for _ in range(3):
        backend.check_triton(kernel, gpu)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "Triton" in caplog.text
    backend.warn_without_triton.cache_clear()
