"""Calibration of the scales, and the first-order variance behind them."""

from dataclasses import replace

import pytest
import torch

import sgpa
from sgpa.core.errors import InputError
from sgpa.gp.temperature import best_temperature
from sgpa.posthoc.calls import read_batch
from sgpa.posthoc.scales import Scales, fit_classes, fit_values
from support.tiny_transformers import TorchEncoder, batch, bert, make, own_kernel, vit


def overconfident(rows=4000, seed=0):
    """Logits whose labels were drawn at a temperature that grows with the carried variance of layer 2."""
    generator = torch.Generator().manual_seed(seed)
    f = 3 * torch.randn(rows, 4, generator=generator)
    carried = 3 * torch.rand(rows, 2, generator=generator) ** 3
    true = Scales(torch.tensor(1.5), torch.tensor([0.0, 12.0]))
    y = (f / true.temperature(carried)).softmax(-1).multinomial(1, generator=generator).squeeze(1)
    return f, carried, y, true


def test_scales_are_recovered():
    f, carried, y, true = overconfident()
    fitted = fit_classes(f, carried, y)
    assert abs(float(fitted.layers[1]) - 12) < 2
    ratio = fitted.temperature(carried) / true.temperature(carried)
    assert 0.9 < ratio.min() < ratio.max() < 1.1


def test_without_variance_the_scale_is_the_temperature():
    f, carried, y, _ = overconfident()
    fitted = fit_classes(f, torch.zeros_like(carried), y)
    T = best_temperature(f.unsqueeze(0), y)
    torch.testing.assert_close(fitted.data.sqrt(), T, rtol=1e-3, atol=0)


def test_scales_never_reorder_classes():
    f, carried, _, true = overconfident()
    assert torch.equal((f / true.temperature(carried)).argmax(-1), f.argmax(-1))


def test_scales_of_values_are_recovered():
    generator = torch.Generator().manual_seed(0)
    carried = torch.rand(5000, 2, generator=generator)
    variance = 0.3 + carried @ torch.tensor([2.0, 0.0])
    values = torch.randn(5000, generator=generator)
    targets = values + variance.sqrt() * torch.randn(5000, generator=generator)
    fitted = fit_values(values, carried, targets)
    assert abs(float(fitted.data) - 0.3) < 0.1
    assert abs(float(fitted.layers[0]) - 2) < 0.3
    assert float(fitted.layers[1]) < 0.15


def test_labels_outside_the_classes_are_refused():
    f, carried, y, _ = overconfident(20)
    with pytest.raises(InputError, match=r"calibrate: label 7 \(allowed: 0 to 3"):
        fit_classes(f, carried, y.index_fill(0, torch.tensor([3]), 7))
    with pytest.raises(InputError, match="calibrate: all 20 rows have label 0"):
        fit_classes(f, carried, torch.zeros_like(y))


@pytest.mark.parametrize("build", [bert, vit, TorchEncoder, own_kernel])
def test_first_order_variance_is_that_of_small_noise(build):
    """Where the GPs leave all variance, the gains are the variance of the logits of sampled passes."""
    model = make(build)
    rows = batch(model, 64)
    gp = sgpa.attach(model, num_inducing=8).fit([rows]).calibrate([batch(model, 48, 1)])
    far = tuple(replace(each, Z=each.Z + 1e4) for each in gp._adapter.gps)  # variance 1 everywhere
    sigma2 = 1e-4
    for layer in range(3):
        scales = Scales(torch.tensor(1.0), sigma2 * torch.eye(4)[layer])
        gp._adapter = replace(gp._adapter, gps=far, scales=scales)
        with torch.no_grad():
            _, f = gp._draw(model, read_batch(rows, torch.device("cpu")), scales.drawn, samples=30, seed=0)
        centred = f - f.mean(-1, keepdim=True)
        drawn = centred.var(0).mean() * f.shape[-1] / (f.shape[-1] - 1)
        expected = sigma2 * far[layer].gain.sum()
        assert 0.7 < float(drawn / expected) < 1.4, layer


def test_noise_that_is_drawn_is_bounded_and_the_rest_is_kept():
    scales = Scales(torch.tensor(1.5), torch.tensor([0.2, 300.0, 2.0]))  # the last one is that of the head
    assert torch.equal(scales.drawn, torch.tensor([0.2, 1.0, 0.0]))
    torch.testing.assert_close(scales.not_drawn.layers + scales.drawn, scales.layers)
    assert scales.not_drawn.data == scales.data


@pytest.mark.parametrize("build", [bert, vit])
def test_rows_that_are_repeated_in_one_pass_answer_as_alone(build):
    model = make(build)
    call = read_batch(batch(model, 5, labels=False), torch.device("cpu"))
    assert call.rows == 5
    with torch.no_grad():
        once, thrice = call(model).logits, call.repeated(3)(model).logits
    torch.testing.assert_close(thrice.unflatten(0, (3, -1)), once.expand(3, -1, -1))
