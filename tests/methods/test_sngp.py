"""SNGP against dense Gaussian processes: covariance, variance, predictions; and the bound on hidden maps."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sgpa.core.errors import ConfigError, InputError
from sgpa.core.files import read_tensors, write_tensors
from sgpa.data import Dataset
from sgpa.methods import Calibration, Mle
from sgpa.methods.sngp import Sngp, gp_head, mean_field, monte_carlo
from sgpa.models import (
    DotProductConfig,
    PointConfig,
    RandomFeatureConfig,
    SpectralConfig,
    TokenConfig,
    Transformer,
)
from sgpa.models.random_features import RandomFeatureHead
from sgpa.models.spectral import SpectralLinear
from sgpa.training.optim import OptimConfig
from sgpa.training.trainer import Trainer
from support.training_runs import CONFIG

SNGP = Sngp(head=RandomFeatureConfig(features=40, ridge=0.7))


def blobs(n, seed, dtype=torch.float32):
    """Three classes of 4 x 4 images that differ in their mean."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    x = torch.randn(n, 1, 4, 4, generator=generator) + 2.0 * (y - 1).view(-1, 1, 1, 1)
    return Dataset(x.to(dtype), y)


def calibration(n=50, dtype=torch.float64):
    return Calibration(blobs(n, 0, dtype), blobs(9, 1, dtype))


def built(method=SNGP, **options):
    torch.manual_seed(0)
    return method.build(replace(CONFIG, **options)).double().train()


def dense_features(model, inputs):
    """cos(W LN(x) + b) by hand, [N, F]."""
    model.eval()
    x = model.features(inputs)[0].detach().numpy()
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    return np.cos(x @ model.head.W.numpy().T + model.head.b.numpy())


def test_covariance_and_variance_are_those_of_the_exact_posterior():
    model, data, test = built(), calibration(), blobs(20, 2, torch.float64).inputs
    calibrated = SNGP.calibrate(model, data)
    assert model.training  # the mode came back
    _, variance = SNGP.predictor(model.eval(), calibrated).moments(test).detach()
    Phi, phi = dense_features(model, data.train.inputs), dense_features(model, test)
    s = SNGP.head.ridge
    # weight space: prior N(0, I), noise variance s
    posterior = np.linalg.inv(np.eye(40) + Phi.T @ Phi / s)
    assert np.allclose(s * calibrated["covariance"].numpy(), posterior, atol=1e-10)
    assert np.allclose(variance.numpy(), np.einsum("bf,fg,bg->b", phi, posterior, phi)[:, None], atol=1e-10)
    # function space: the GP with kernel φ(x)'φ(x') given 50 noisy observations
    K, k = Phi @ Phi.T + s * np.eye(50), phi @ Phi.T
    explained = np.einsum("bn,nm,bm->b", k, np.linalg.inv(K), k)
    assert np.allclose(variance.numpy()[:, 0], (phi**2).sum(1) - explained, atol=1e-9)


def test_the_laplace_covariance_has_a_precision_for_each_class():
    method = replace(SNGP, covariance="laplace")
    model, data, test = built(method), calibration(), blobs(20, 2, torch.float64).inputs
    covariance = method.calibrate(model, data)["covariance"]
    Phi, phi = dense_features(model, data.train.inputs), dense_features(model, test)
    p = model(data.train.inputs).f.softmax(-1).detach().numpy()
    _, variance = method.predictor(model, {"covariance": covariance}).moments(test).detach()
    for k in range(3):
        precision = 0.7 * np.eye(40) + (Phi * (p[:, k] * (1 - p[:, k]))[:, None]).T @ Phi
        assert np.allclose(covariance[k].numpy(), np.linalg.inv(precision), atol=1e-10)
        expected = 0.7 * np.einsum("bf,fg,bg->b", phi, np.linalg.inv(precision), phi)
        assert np.allclose(variance[:, k].numpy(), expected, atol=1e-10)
    # less information than the Gaussian likelihood: p (1 - p) <= 1 / 4
    assert (variance > SNGP.predictor(model, SNGP.calibrate(model, data)).moments(test)[1]).all()


def test_a_float32_model_has_nearly_the_same_posterior():
    model, data = built(), calibration()
    exact = SNGP.calibrate(model, data)["covariance"]
    covariance = SNGP.calibrate(model.float(), calibration(dtype=torch.float32))["covariance"]
    assert covariance.dtype == torch.float64
    assert torch.allclose(covariance, exact, atol=1e-4)


@given(n=st.integers(1, 60), seed=st.integers(0, 99), log_scale=st.floats(-6, 6), log_ridge=st.floats(-4, 3))
@settings(max_examples=25, deadline=None)
def test_the_covariance_is_symmetric_and_positive(n, seed, log_scale, log_ridge):
    for kind in ("gaussian", "laplace"):
        head = RandomFeatureConfig(features=12, ridge=10**log_ridge)
        method = Sngp(head=head, covariance=kind)
        torch.manual_seed(seed)
        model = method.build(replace(CONFIG, depth=1))
        x = 10**log_scale * torch.randn(n, 1, 4, 4)
        data = Dataset(x, torch.zeros(n, dtype=torch.long))
        covariance = method.calibrate(model, Calibration(data, data))["covariance"]
        assert torch.allclose(covariance, covariance.mT, rtol=1e-9)
        eigenvalues = torch.linalg.eigvalsh(covariance) * 10**log_ridge
        assert eigenvalues.min() > 0
        assert eigenvalues.max() < 1 + 1e-6  # data never make the posterior wider than the prior
        prediction = method.predictor(model, {"covariance": covariance}).predict(x)
        assert torch.allclose(prediction.probabilities.sum(-1), torch.ones(n), atol=1e-5)


def test_monte_carlo_predictions_are_those_of_many_draws():
    method = replace(SNGP, samples=100_000)
    model, data = built(), calibration(6)
    calibrated, test = method.calibrate(model, data), blobs(4, 2, torch.float64).inputs
    mean, variance = method.predictor(model.eval(), calibrated).moments(test).detach().numpy()
    epsilon = np.random.default_rng(0).normal(size=(100_000, 4, 3))
    f = np.exp(mean + np.sqrt(variance) * epsilon)
    p = f / f.sum(-1, keepdims=True)
    prediction = method.predictor(model, calibrated).predict(test)
    assert variance.min() > 0.1
    assert np.allclose(prediction.probabilities.numpy(), p.mean(0), atol=0.006)
    assert np.allclose(prediction.expected_entropy.numpy(), -(p * np.log(p)).sum(-1).mean(0), atol=0.01)
    ten = SNGP.predictor(model, calibrated).predict(test)
    assert torch.equal(ten.probabilities, SNGP.predictor(model, calibrated).predict(test).probabilities)
    other = SNGP.predictor(model, calibrated).predict(test, seed=1)
    assert not torch.equal(ten.probabilities, other.probabilities)
    in_batches = SNGP.predictor(model, calibrated).predict(test, batch_size=3)
    assert torch.allclose(ten.probabilities, in_batches.probabilities)


def test_mean_field_predictions_are_close_to_those_of_many_draws():
    mean, variance = torch.randn(200, 3), 3 * torch.rand(200, 1).expand(200, 3)
    draws = monte_carlo(mean, variance, replace(SNGP, samples=20_000), 0).softmax(-1).mean(0)
    ours = mean_field(mean, variance, SNGP, 0).softmax(-1)[0]
    assert torch.allclose(ours, (mean / (1 + math.pi / 8 * variance).sqrt()).softmax(-1))
    assert (ours - draws).abs().mean() < 0.6 * (mean.softmax(-1) - draws).abs().mean()
    # two classes with noise of their own: the difference of logits has twice the variance, so that the
    # probit approximation is λ = π / 4
    twice = replace(SNGP, mean_field_factor=math.pi / 4)
    two = monte_carlo(mean[:, :2], variance[:, :2], replace(SNGP, samples=20_000), 0).softmax(-1).mean(0)
    assert (mean_field(mean[:, :2], variance[:, :2], twice, 0).softmax(-1)[0] - two).abs().max() < 0.03
    model, data = built(), calibration()
    method = replace(SNGP, predictive="mean-field")
    prediction = method.predictor(model, method.calibrate(model, data)).predict(data.train.inputs)
    assert prediction.mutual_information.max() < 1e-6
    point = method.predictor(model).predict(data.train.inputs)
    assert (prediction.entropy > point.entropy).all()


def test_without_calibration_it_predicts_with_its_mean():
    model, x = built(), blobs(5, 2, torch.float64).inputs
    prediction = SNGP.predictor(model).predict(x)
    assert torch.allclose(prediction.probabilities, model.eval()(x).f.softmax(-1))


def test_variance_grows_with_the_distance_from_data():
    torch.manual_seed(0)
    head = RandomFeatureHead(3, 2, features=400).double()
    angle = torch.linspace(-0.3, 0.3, 100).double()  # LayerNorm puts every x [3] on a circle
    basis = torch.tensor([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]).double()
    basis = basis / basis.norm(dim=1, keepdim=True)

    def at(a):
        return head.features(torch.stack([a.cos(), a.sin()], -1) @ basis)

    Phi = at(angle)
    covariance = torch.linalg.inv(torch.eye(400).double() + Phi.mT @ Phi)
    v = head.variance(at(torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0]).double()), covariance)[:, 0]
    assert (v.diff() > 0).all()
    assert v[-1] > 100 * v[0]
    assert v[-1] == pytest.approx(200, rel=0.2)  # the prior variance, half the number of features


def fitted(method=SNGP, **options):
    optim = OptimConfig(epochs=30, batch_size=10, lr=2e-2, select_every=5)
    parts = {"config": replace(CONFIG, **options), "train": blobs(30, 0), "validation": blobs(30, 1)}
    return Trainer(method=method, optim=optim, **parts).fit()


@pytest.mark.parametrize("attention", [SNGP.attention, DotProductConfig()])
def test_training_learns_and_unfamiliar_images_have_a_larger_variance(attention, tmp_path):
    method = replace(SNGP, attention=attention, head=RandomFeatureConfig(features=200))
    model, test = fitted(method), blobs(60, 2)
    calibrated = method.calibrate(model, Calibration(blobs(30, 0), blobs(30, 1)))
    prediction = method.predictor(model, calibrated).predict(test.inputs)
    assert (prediction.label == test.targets).float().mean() > 0.85
    checkers = (torch.arange(4).view(4, 1) + torch.arange(4)) % 2 * 6.0 - 3
    strange = checkers.expand(60, 1, 4, 4) + 0.1 * torch.randn(60, 1, 4, 4)
    predictor = method.predictor(model, calibrated)
    assert predictor.moments(strange)[1].mean() > 1.5 * predictor.moments(test.inputs)[1].mean()
    # model and calibration come back from files the same
    write_tensors(tmp_path / "calibration.safetensors", dict(calibrated))
    model.save_pretrained(tmp_path / "model")
    again = Transformer.from_pretrained(tmp_path / "model")
    tensors, _ = read_tensors(tmp_path / "calibration.safetensors")
    assert again.config == model.config
    back = method.predictor(again, tensors).predict(test.inputs)
    assert torch.equal(back.probabilities, prediction.probabilities)


def test_hidden_maps_keep_their_bound_through_training():
    model = fitted(replace(SNGP, spectral=SpectralConfig(bound=0.8)))
    maps = {n: m for n, m in model.named_modules() if isinstance(m, SpectralLinear)}
    assert {n.rsplit(".", 1)[-1] for n in maps} == {"W_o", "up", "down"}
    norms = {n: torch.linalg.svdvals(m.weight)[0].item() for n, m in maps.items()}
    assert max(norms.values()) > 1.0  # some would exceed the bound
    for name, m in maps.items():
        assert torch.linalg.svdvals(m.bounded_weight)[0] < 0.8 * 1.02
        if norms[name] < 0.8:
            assert torch.equal(m.bounded_weight, m.weight)


def test_power_iteration_finds_the_largest_singular_value():
    torch.manual_seed(0)
    linear = nn.Linear(7, 5).double()
    bounded = SpectralLinear.around(linear, bound=0.3, iterations=1)
    for _ in range(50):
        bounded(torch.randn(2, 7).double())
    assert torch.linalg.svdvals(bounded.bounded_weight)[0].item() == pytest.approx(0.3)
    used_weight = bounded.eval()(torch.eye(7).double()) - linear.bias
    assert torch.allclose(used_weight.mT, bounded.bounded_weight)
    u = bounded.u.clone()
    bounded(torch.randn(2, 7).double())
    assert torch.equal(u, bounded.u)  # evaluation changes nothing
    small = SpectralLinear.around(linear, bound=100.0, iterations=1)
    assert torch.equal(small.bounded_weight, linear.weight)
    # the norm takes part in the gradient: along its own direction a bounded map does not change
    bounded.bounded_weight.square().sum().backward()
    assert (linear.weight.grad * linear.weight).sum().abs() < 1e-9


def test_half_precision_does_not_loosen_the_bound():
    torch.manual_seed(0)
    bounded = SpectralLinear(32, 32, bound=0.3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(100):
            bounded(torch.randn(2, 32))
        norm = torch.linalg.svdvals(bounded.bounded_weight.float())[0].item()
    assert norm == pytest.approx(0.3, rel=1e-3)


def test_texts_are_calibrated_too_and_hidden_maps_may_be_free():
    config = replace(CONFIG, embedding=TokenConfig(vocabulary=9, max_tokens=6, embedding_width=8), outputs=2)
    method = replace(SNGP, spectral=PointConfig())
    model = method.build(config)
    assert not [m for m in model.modules() if isinstance(m, SpectralLinear)]
    ids = torch.randint(1, 9, (12, 6))
    ids[:5, 3:] = 0
    data = Dataset(ids, torch.arange(12) % 2)
    prediction = method.predictor(model, method.calibrate(model, Calibration(data, data))).predict(ids)
    assert prediction.probabilities.shape == (12, 2)


def test_bad_settings_and_models_are_refused():
    with pytest.raises(ConfigError, match=r"covariance='full'.*predictive='exact'"):
        Sngp(covariance="full", predictive="exact")
    with pytest.raises(ConfigError, match=r"samples=0.*factor=-1"):
        Sngp(samples=0, mean_field_factor=-1)
    with pytest.raises(ConfigError, match=r"sngp: likelihood='laplace' \(allowed: categorical\)"):
        SNGP.build(replace(CONFIG, outputs=1, likelihood="laplace"))
    with pytest.raises(InputError, match="no random features"):
        gp_head(Mle().build(CONFIG))
    with pytest.raises(InputError, match=r"the covariance is \[3, 3\], the model has 40 random features"):
        SNGP.predictor(built(), {"covariance": torch.eye(3)})
    assert not SNGP.regression
