"""Layers and models on their fast paths, and without Triton."""

import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from sgpa.attention import ChengBootsSgpa, DotProductAttention, KernelAttention, OrthogonalSgpa, StandardSgpa
from sgpa.attention.kernel import KernelProjections
from sgpa.core.inputs import Batch
from sgpa.gp import linalg
from sgpa.gp.fused import TRITON, WIDTH
from sgpa.gp.kernels import ArdRbfKernel, ExponentialKernel
from sgpa.gp.objective import Progress
from sgpa.training.steps import choose
from support.training_runs import CONFIG, METHODS, blobs, trainer

KERNELS = {"rbf": ArdRbfKernel, "exponential": ExponentialKernel}
needs_triton = pytest.mark.skipif(not TRITON, reason="Triton is not installed")
on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="compares with the plain path of the CPU")


@pytest.fixture
def forced(monkeypatch):
    """A switch: inside, layers with a fast path take it on the CPU too, where the interpreter runs it."""

    def switch():
        monkeypatch.setattr(
            KernelProjections, "fuses", lambda self, x: self.controls_own_precision and x.ndim == 3
        )
        monkeypatch.setattr("sgpa.attention.global_state.inducing_fuses", lambda k_g: k_g.shape[-2] <= WIDTH)

    return switch


def layers(kernel):
    torch.manual_seed(0)
    kernels = [kernel(2, 6, variance=0.7, lengthscale=2.0) for _ in range(2)]
    where = 0.3 * torch.randn(70, 2, 6)
    placed = OrthogonalSgpa(12, 2, kernels[1], num_global=5, init="paper", places=where)
    placed.init_on_data(torch.randn(9, 12), torch.arange(9))
    return {
        "kernel attention": KernelAttention(12, 2, kernels[0]),
        "sgpa": OrthogonalSgpa(12, 2, kernels[1], num_global=5, init="paper"),
        "sgpa with places": placed,
        "cheng-boots": ChengBootsSgpa(12, 2, kernels[1], num_global=5, init="paper"),
    }


def moments_and_gradients(layer, x, padding):
    x = x.clone().requires_grad_()
    found = layer.moments(x.masked_fill(padding.unsqueeze(-1), 0.0), padding)
    out = [found.mean, found.posterior.variance, found.kl.g, found.kl.a]
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
        found = fused[name]
        if expected is None:
            assert found is None or not found.any(), name
        else:
            error = (found - expected).detach().abs().max() / expected.detach().abs().max().clamp_min(1)
            assert float(error) <= rounding, name


@needs_triton
@on_cpu
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", ["kernel attention", "sgpa", "sgpa with places", "cheng-boots"])
@pytest.mark.parametrize("T", [7, 70])
def test_a_layer_on_its_fast_path_is_the_plain_layer(forced, kernel, name, T):
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
def test_a_recorded_step_of_a_model_is_the_plain_step(forced, name):
    torch.manual_seed(0)
    method = METHODS[name]
    model, data = method.build(CONFIG), blobs(4, 0)

    def step():
        torch.manual_seed(1)
        with linalg.unchecked():
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


def rbf(heads=2, width=6):
    return ArdRbfKernel(heads, width)


def test_what_has_no_fast_path_does_not_claim_one():
    without = {
        "standard": StandardSgpa(12, 2, rbf(), max_tokens=4),
        "joint": OrthogonalSgpa(12, 2, rbf(), num_global=3, joint=True),
        "untied": OrthogonalSgpa(12, 2, rbf(), num_global=3, tied=False),
        "untied kernel attention": KernelAttention(12, 2, rbf(), tied=False),
        "many inducing points": OrthogonalSgpa(12, 2, rbf(), num_global=WIDTH + 1),
        "wide heads": OrthogonalSgpa(WIDTH + 1, 1, rbf(1, WIDTH + 1), num_global=3),
        "wide heads, kernel attention": KernelAttention(WIDTH + 1, 1, rbf(1, WIDTH + 1)),
    }
    for name, layer in without.items():
        assert not layer.controls_own_precision, name
        assert not layer.fuses(torch.zeros(2, layer.num_heads, 4, layer.head_width)), name


def test_what_has_one_says_so():
    fine = {
        "kernel attention": KernelAttention(12, 2, rbf()),
        "the widest": OrthogonalSgpa(WIDTH, 1, rbf(1, WIDTH), num_global=WIDTH),
        "exponential": OrthogonalSgpa(12, 2, ExponentialKernel(2, 6), num_global=3),
        "cheng-boots": ChengBootsSgpa(12, 2, rbf(), num_global=3),
    }
    for name, layer in fine.items():
        assert layer.controls_own_precision == TRITON, name
    assert DotProductAttention(12, 2).controls_own_precision  # nothing it does needs care


def test_a_kernel_of_ones_own_has_no_fast_path():
    class Own(ArdRbfKernel):
        pass

    assert not KernelAttention(12, 2, Own(2, 6)).controls_own_precision


def test_the_fast_path_is_for_float32_on_a_gpu():
    layer = KernelAttention(12, 2, rbf())
    x = torch.zeros(2, 4, 12, device="cuda" if torch.cuda.is_available() else "cpu")
    assert layer.fuses(x) == (TRITON and x.is_cuda)
    assert not layer.fuses(x.double())
    assert not layer.fuses(x.bfloat16())
    assert not layer.fuses(x[0])


WITHOUT = """
import sys
sys.modules["triton"] = None
import torch
torch.set_num_threads(1)
import sgpa.inference.serve
from safetensors.torch import save_file
from sgpa.gp.fused import TRITON, fuses, inducing_fuses
from support.training_runs import trainer
model = trainer(seed=0).fit()
assert not TRITON
assert not any(layer.attention.controls_own_precision for layer in model.gp_layers)
assert not fuses(torch.zeros(1, 1, 3, 2), torch.zeros(1, 2, 3, 3))
assert not inducing_fuses(torch.zeros(2, 2))
save_file(model.state_dict(), sys.argv[1])
"""


def test_without_triton_a_model_trains_to_the_same_weights(tmp_path):
    path, places = tmp_path / "weights.safetensors", os.pathsep.join(place for place in sys.path if place)
    subprocess.run([sys.executable, "-c", WITHOUT, str(path)], check=True, env={"PYTHONPATH": places})
    model = trainer(seed=0).fit()
    trained = load_file(path)
    for name, expected in model.state_dict().items():
        assert torch.equal(trained[name], expected), name


def model_of(attention, device):
    layer = SimpleNamespace(attention=attention)
    return SimpleNamespace(device=torch.device(device), gp_layers=[layer])


def test_a_gpu_without_triton_is_told_of_once(monkeypatch, caplog):
    choose.warn_of_triton.cache_clear()
    kernel, softmax = KernelAttention(12, 2, rbf()), DotProductAttention(12, 2)
    monkeypatch.setattr(choose, "TRITON", True)
    choose.check_triton(model_of(kernel, "cuda"))
    monkeypatch.setattr(choose, "TRITON", False)
    choose.check_triton(model_of(kernel, "cpu"))
    choose.check_triton(model_of(softmax, "cuda"))
    assert not caplog.records
    for _ in range(3):
        choose.check_triton(model_of(kernel, "cuda"))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "Triton" in caplog.text
    choose.warn_of_triton.cache_clear()
