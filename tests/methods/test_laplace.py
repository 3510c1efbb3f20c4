"""Last-layer Laplace on trained Transformers; its equations are tested in test_laplace_equations.py."""

import math
from dataclasses import replace

import pytest
import torch

from oracles import laplace as dense
from sgpa.core.errors import ConfigError, InputError
from sgpa.core.files import read_tensors, write_tensors
from sgpa.data import Dataset
from sgpa.evaluation.evaluate import evaluate
from sgpa.evaluation.results import Subject
from sgpa.methods import NOTHING, Calibration, Mle, Sgpa
from sgpa.methods.laplace import GRID, KfacLaplace, head_inputs
from sgpa.methods.temperature import TemperatureScaling
from sgpa.models import (
    DotProductConfig,
    KernelAttentionConfig,
    MeanFieldConfig,
    RandomFeatureConfig,
    SgpaConfig,
    Transformer,
)
from sgpa.training.optim import OptimConfig
from sgpa.training.trainer import Trainer
from support.training_runs import CONFIG

ATTENTIONS = {"kernel": KernelAttentionConfig(), "sdp": DotProductConfig()}


def images(n, seed=0, classes=3):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    x = torch.randn(n, 1, 4, 4, generator=generator) + 0.5 * (y - 1.0).view(-1, 1, 1, 1)
    return Dataset(x, y)


def calibration(classes=3):
    return Calibration(images(90, classes=classes), images(60, 1, classes))


def fitted(attention, classes=3):
    return Trainer(
        method=KfacLaplace(base=Mle(attention=attention)).trains,
        config=replace(CONFIG, outputs=classes),
        optim=OptimConfig(epochs=12, batch_size=15, lr=1e-2, select_every=4),
        train=images(90, classes=classes),
        validation=images(60, 1, classes),
    ).fit()


@pytest.fixture(scope="module")
def trained():
    return {name: fitted(attention) for name, attention in ATTENTIONS.items()}


every_attention = pytest.mark.parametrize("name", ATTENTIONS)


@every_attention
@pytest.mark.parametrize("predictive", ["probit", "monte-carlo"])
def test_from_a_trained_transformer_to_results(trained, tmp_path, name, predictive):
    method, model = KfacLaplace(base=Mle(attention=ATTENTIONS[name]), predictive=predictive), trained[name]
    write_tensors(tmp_path / "kflla.safetensors", method.calibrate(model, calibration()))
    predictor = method.predictor(model, read_tensors(tmp_path / "kflla.safetensors")[0])
    test = images(300, 2)
    prediction, plain = predictor.predict(test.inputs), model.predict(test.inputs)
    assert prediction.probabilities.dtype == torch.float32
    assert torch.allclose(prediction.probabilities.sum(-1), torch.ones(300))
    assert (prediction.label == plain.label).float().mean() > 0.9
    assert prediction.entropy.mean() > plain.entropy.mean()
    assert (prediction.expected_entropy >= 0).all()
    assert (prediction.mutual_information > 0).float().mean() > 0.9
    results = evaluate(predictor, Subject("blobs", name, method.id, 0), test)
    assert all(math.isfinite(r["value"]) for r in results.records)


@every_attention
def test_calibration_equals_a_dense_computation(trained, name):
    model, data = trained[name], calibration()
    calibrated = KfacLaplace(base=Mle(attention=ATTENTIONS[name])).calibrate(model, data)
    with torch.no_grad():
        phi = model.features(data.train.inputs)[0].double()
        theta = torch.cat([model.head.weight.flatten(), model.head.bias]).double()
    H, delta = dense.kronecker_ggn(theta, phi), float(calibrated["delta"])
    expected = dense.log_evidence(H, delta, theta, phi, data.train.targets)
    assert float(calibrated["log_evidence"]) == pytest.approx(float(expected), rel=1e-5)
    for factor in (0.9, 1.1):
        assert dense.log_evidence(H, factor * delta, theta, phi, data.train.targets) < expected
    p = KfacLaplace().predictor(model, calibrated).predict(data.train.inputs).probabilities
    Sigma = dense.output_covariance(H, delta, theta, phi).diagonal(dim1=-2, dim2=-1)
    assert torch.allclose(
        p.double(),
        (torch.func.vmap(dense.outputs, (None, 0))(theta, phi) / (1 + math.pi * Sigma / 8).sqrt()).softmax(
            -1
        ),
        atol=1e-5,
    )


def test_a_strong_prior_leaves_the_point_model(trained):
    model, method = trained["kernel"], KfacLaplace()
    calibrated = dict(method.calibrate(model, calibration())) | {"delta": torch.tensor(1e12)}
    prediction = method.predictor(model, calibrated).predict(images(20).inputs)
    assert torch.allclose(prediction.probabilities, model.predict(images(20).inputs).probabilities, atol=1e-5)
    assert prediction.mutual_information.max() < 1e-5


def test_mutual_information_is_that_of_the_draws_and_shrinks_with_data(trained):
    model, data, test = trained["sdp"], calibration(), images(50, 3)
    more = replace(data, train=data.train[torch.arange(90).repeat(50)])
    method = KfacLaplace(samples=200)
    few, many = (method.calibrate(model, d) for d in (data, more))
    many = dict(many) | {"delta": few["delta"]}
    drawn = replace(method, predictive="monte-carlo").predictor(model, few).predict(test.inputs)
    prediction = method.predictor(model, few).predict(test.inputs)
    assert torch.allclose(prediction.mutual_information, drawn.mutual_information, atol=1e-5)
    later = method.predictor(model, many).predict(test.inputs)
    assert later.mutual_information.mean() < 0.5 * prediction.mutual_information.mean()


@pytest.mark.parametrize("predictive", ["probit", "monte-carlo"])
def test_equal_seeds_give_equal_predictions_without_side_effects(trained, predictive):
    model, method = trained["kernel"], KfacLaplace(predictive=predictive)
    model.train()
    state = torch.get_rng_state()
    predictor = method.predictor(model, method.calibrate(model, calibration()))
    first, second = (predictor.predict(images(20).inputs) for _ in range(2))
    parts = predictor.predict(images(20).inputs, batch_size=7)
    other = predictor.predict(images(20).inputs, seed=1)
    assert model.training
    model.eval()
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(first.probabilities, second.probabilities)
    assert torch.allclose(first.probabilities, parts.probabilities, atol=1e-5)
    assert torch.equal(first.expected_entropy, second.expected_entropy)
    assert torch.equal(first.probabilities, other.probabilities) == (predictive == "probit")


def test_a_binary_transformer_keeps_its_labels_with_probit():
    model, method, test = fitted(KernelAttentionConfig(), classes=2), KfacLaplace(), images(200, 4, classes=2)
    prediction = method.predictor(model, method.calibrate(model, calibration(2))).predict(test.inputs)
    assert torch.equal(prediction.label, model.predict(test.inputs).label)


@pytest.mark.parametrize("predictive", ["probit", "monte-carlo"])
def test_validation_picks_the_best_of_the_grid(trained, predictive):
    model, data = trained["kernel"], calibration()
    method = KfacLaplace(prior="validation", predictive=predictive)
    calibrated = method.calibrate(model, data)
    scores = []
    for delta in GRID:
        chosen = dict(calibrated) | {"delta": torch.tensor(delta, dtype=torch.float64)}
        p = method.predictor(model, chosen).predict(data.validation.inputs).probabilities
        scores.append(float(-p.double().gather(-1, data.validation.targets.unsqueeze(-1)).log().mean()))
    best = min(scores)
    assert scores[GRID.index(float(calibrated["delta"]))] == pytest.approx(best, abs=1e-6)
    assert len(GRID) == 100
    assert (GRID[0], GRID[-1]) == pytest.approx((1e-4, 1e4))


# Invalid use


def test_settings_out_of_range_are_reported_together():
    with pytest.raises(
        ConfigError, match=r"kflla: base='ts'.*prior='flat' \(allowed: marg.*predictive.*samples=0"
    ):
        KfacLaplace(base=TemperatureScaling(), prior="flat", predictive="exact", samples=0)


def test_predicting_before_calibrating_raises(trained):
    with pytest.raises(InputError, match=r"kflla: no g and no Q.*call calibrate first"):
        KfacLaplace().predictor(trained["kernel"], NOTHING)


def test_the_calibration_of_another_model_raises(trained):
    calibrated = KfacLaplace().calibrate(trained["kernel"], calibration())
    other = Mle().build(replace(CONFIG, outputs=5))
    with pytest.raises(
        InputError, match="for 3 classes and 8 features, the model has 5 and 8; call calibrate"
    ):
        KfacLaplace().predictor(other, calibrated)


RANDOM = {
    "attention": (replace(CONFIG, attention=SgpaConfig(num_global=3)), "features are random"),
    "weights": (replace(CONFIG, weights=MeanFieldConfig()), "head is a BayesianLinear"),
    "head": (replace(CONFIG, head=RandomFeatureConfig(features=16)), "head is a RandomFeatureHead"),
}


@pytest.mark.parametrize("case", RANDOM)
def test_random_models_and_other_heads_raise(case):
    config, message = RANDOM[case]
    model = Transformer(config)
    for call in (
        lambda: KfacLaplace().calibrate(model, calibration()),
        lambda: KfacLaplace().predictor(model),
    ):
        with pytest.raises(ConfigError, match=f"kflla: the model's {message}; Laplace needs a"):
            call()
    with pytest.raises(ConfigError, match="features are random"):
        KfacLaplace(base=Sgpa()).calibrate(
            Sgpa(attention=SgpaConfig(num_global=3)).build(CONFIG), calibration()
        )


def test_calibration_and_prediction_do_not_depend_on_the_mode_of_the_model(trained):
    model, method, x = trained["kernel"], KfacLaplace(), images(20, 3).inputs
    assert model.dropout.p > 0
    expected = method.calibrate(model.eval(), calibration())
    probabilities = method.predictor(model, expected).predict(x).probabilities
    model.train()  # dropout would make features random
    with torch.no_grad():
        assert not torch.equal(model.features(x)[0], model.features(x)[0])
    calibrated = method.calibrate(model, calibration())
    in_training = method.predictor(model, calibrated).predict(x).probabilities
    assert model.training
    model.eval()
    assert set(calibrated) == set(expected)
    assert all(torch.equal(calibrated[name], expected[name]) for name in expected)
    assert torch.equal(in_training, probabilities)


def test_a_regression_model_raises():
    model = Mle().build(replace(CONFIG, outputs=1, likelihood="laplace"))
    with pytest.raises(InputError, match="kflla: the model has a laplace likelihood"):
        KfacLaplace().calibrate(model, calibration())
    assert not KfacLaplace.regression


def test_an_empty_data_set_raises():
    with pytest.raises(InputError, match="the data set is empty"):
        Calibration(images(0), images(3))


@pytest.mark.parametrize("prior", ["marginal-likelihood", "validation"])
def test_labels_out_of_range_raise(trained, prior):
    bad = Dataset(images(3).inputs, torch.tensor([0, 1, 3]))
    data = replace(calibration(), **({"validation": bad} if prior == "validation" else {"train": bad}))
    with pytest.raises(InputError, match=r"row 2: label 3 is outside 0\.\.2"):
        KfacLaplace(prior=prior).calibrate(trained["kernel"], data)


def test_features_that_are_not_finite_raise():
    model = Mle().build(CONFIG)
    with torch.no_grad():
        model.norm.bias[0] = math.nan
    with pytest.raises(InputError, match="kflla: the features of training row 0 are not finite"):
        KfacLaplace().calibrate(model, calibration())


def test_features_and_outputs_do_not_depend_on_the_batch(trained):
    model, x = trained["sdp"], images(300).inputs  # more rows than go through at once
    phi, f = head_inputs(model, x)
    with torch.no_grad():
        assert torch.allclose(phi, model.features(x)[0].double(), atol=1e-5)
        assert torch.allclose(f, model(x).f.double(), atol=1e-5)
