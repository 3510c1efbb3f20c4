import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sgpa.core.errors import ConfigError, InputError
from sgpa.core.files import read_tensors, write_tensors
from sgpa.data import Dataset
from sgpa.evaluation.evaluate import evaluate
from sgpa.evaluation.results import Subject
from sgpa.gp.temperature import BOUND, best_temperature, mixture_nll
from sgpa.methods import NOTHING, Calibration, Mle
from sgpa.methods.base import check_finite
from sgpa.methods.laplace import KfacLaplace
from sgpa.methods.temperature import TemperatureScaling
from sgpa.training.optim import OptimConfig
from sgpa.training.trainer import Trainer
from support.training_runs import CONFIG, METHODS

BASES = {name: METHODS[name] for name in ("kernel-mle", "sdp-mle", "sgpa")}
every_base = pytest.mark.parametrize("base", BASES.values(), ids=BASES)


def images(n, seed=0, noise=0.5):
    """Three classes that differ in their mean, with a share of labels drawn at random."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    x = torch.randn(n, 1, 4, 4, generator=generator) + (y - 1.0).view(-1, 1, 1, 1)
    wrong = torch.rand(n, generator=generator) < noise
    return Dataset(x, torch.where(wrong, torch.randint(3, (n,), generator=generator), y))


def built(base=BASES["kernel-mle"], seed=0, config=CONFIG):
    torch.manual_seed(seed)
    model = base.build(config).eval()
    with torch.no_grad():
        model.head.weight.mul_(10)  # overconfident
    return model


def calibration(validation=None):
    return Calibration(images(30), images(60, 1) if validation is None else validation)


def logits(seed, samples, rows, classes, scale):
    """Samples that agree in part, and labels that follow them in part."""
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    f = mean + 0.5 * torch.randn(samples, rows, classes, generator=generator, dtype=torch.float64)
    y = (mean + torch.randn(rows, classes, generator=generator, dtype=torch.float64)).argmax(-1)
    y[:2] = torch.tensor([0, 1])
    return scale * f, y


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000), st.integers(1, 3), st.integers(4, 40), st.integers(2, 5), st.floats(0.02, 50.0)
)
def test_temperature_is_the_best_of_a_fine_grid(seed, samples, rows, classes, scale):
    f, y = logits(seed, samples, rows, classes, scale)
    T = best_temperature(f, y)
    grid = torch.linspace(-math.log(BOUND), math.log(BOUND), 801, dtype=torch.float64)
    nll = torch.stack([mixture_nll(f / t, y) for t in grid.exp()])
    i = int(nll.argmin())
    assert mixture_nll(f / T, y) <= nll[i] + 1e-9
    sharp = 0 < i < 800 and min(nll[i - 1], nll[i + 1]) - nll[i] > 1e-9
    assert samples > 1 or not sharp or abs(T.log() - grid[i]) <= grid[1] - grid[0]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3), st.floats(0.02, 50.0))
def test_it_is_never_worse_than_temperature_one(seed, samples, scale):
    f, y = logits(seed, samples, 12, 3, scale)
    assert mixture_nll(f / best_temperature(f, y), y) <= mixture_nll(f, y)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.3, 3.0))
def test_it_scales_with_the_outputs(seed, c):
    f, y = logits(seed, 1, 50, 4, 1.0)
    T = best_temperature(f, y)
    assert 0.2 < T < 5  # away from the bounds
    assert float(best_temperature(c * f, y)) == pytest.approx(c * float(T), rel=1e-5)


@pytest.mark.parametrize("T", [0.4, 1.0, 2.5])
def test_it_recovers_the_temperature_that_made_the_labels(T):
    generator = torch.Generator().manual_seed(0)
    f = 2 * torch.randn(1, 20_000, 5, generator=generator, dtype=torch.float64)
    y = torch.multinomial((f[0] / T).softmax(-1), 1, generator=generator).squeeze(-1)
    assert float(best_temperature(f, y)) == pytest.approx(T, rel=0.04)  # its standard error is about 1 %


def test_the_lower_of_two_minima_is_found():
    f, y = logits(1713, 3, 4, 3, 8.0)  # the NLL of a mixture falls from T = 1 to both sides
    T, other = best_temperature(f, y), torch.tensor(0.9333)
    beside = [mixture_nll(f / t, y) for t in (other - 0.05, other, other + 0.05)]
    assert beside[1] < min(beside[0], beside[2])
    assert float(T) == pytest.approx(5.452, rel=1e-3)


def test_its_gradient_vanishes():
    f, y = logits(3, 3, 200, 4, 2.0)
    t = best_temperature(f, y).log().requires_grad_()
    mixture_nll(f / t.exp(), y).backward()
    assert abs(float(t.grad)) < 1e-7


def test_constant_outputs_keep_temperature_one():
    assert float(best_temperature(torch.zeros(1, 6, 3), torch.tensor([0, 1, 2, 0, 1, 2]))) == 1


def test_all_correct_rows_give_the_lower_bound(caplog):
    y = torch.arange(9) % 3
    f = 5 * torch.nn.functional.one_hot(y, 3).double().unsqueeze(0)
    assert float(best_temperature(f, y)) == pytest.approx(1 / BOUND)
    assert "the temperature stops at its bound: T = 0.05" in caplog.text


def test_all_wrong_rows_give_the_upper_bound(caplog):
    y = torch.arange(9) % 3
    f = -1e4 * torch.nn.functional.one_hot(y, 3).double().unsqueeze(0)
    assert float(best_temperature(f, y)) == pytest.approx(BOUND)
    assert "allowed 0.05 to 20" in caplog.text


@every_base
def test_predictions_have_the_nll_that_was_minimised(base):
    model, data = built(base), calibration()
    method = TemperatureScaling(base=base)
    calibrated = method.calibrate(model, data)
    prediction = method.predictor(model, calibrated).predict(data.validation.inputs)
    y = data.validation.targets
    f = model.draw(data.validation.inputs)
    nll = -prediction.probabilities.double().gather(-1, y.unsqueeze(-1)).log().mean()
    assert len(f) == (10 if base.id == "sgpa" else 1)
    assert float(nll) == pytest.approx(float(mixture_nll(f / calibrated["temperature"], y)), abs=1e-5)
    assert nll < model.likelihood.nll(model.predict(data.validation.inputs).probabilities.log(), y).mean()
    assert (prediction.mutual_information > 1e-6).any() == (base.id == "sgpa")


@pytest.mark.parametrize("name", ["kernel-mle", "sdp-mle"])
def test_labels_of_a_deterministic_model_do_not_change(name):
    model, data = built(BASES[name]), calibration()
    method = TemperatureScaling(base=BASES[name])
    prediction = method.predictor(model, method.calibrate(model, data)).predict(images(200, 5).inputs)
    plain = model.predict(images(200, 5).inputs)
    assert torch.equal(prediction.label, plain.label)
    assert (prediction.entropy > plain.entropy).float().mean() > 0.95


@every_base
def test_model_and_random_state_are_not_changed(base):
    model, method = built(base).train(), TemperatureScaling(base=base)
    before, state = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    calibrated = method.calibrate(model, calibration())
    predictor = method.predictor(model, calibrated)
    first, second = (predictor.predict(images(20).inputs) for _ in range(2))
    assert torch.equal(first.probabilities, second.probabilities)
    assert model.training
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(
        calibrated["temperature"], method.calibrate(model.eval(), calibration())["temperature"]
    )


def test_calibration_under_no_grad_is_the_same():
    model, method = built(), TemperatureScaling()
    with torch.no_grad():
        inside = method.calibrate(model, calibration())
    assert torch.equal(inside["temperature"], method.calibrate(model, calibration())["temperature"])


def test_from_training_to_results(tmp_path):
    method = TemperatureScaling()
    model = Trainer(
        method=method.trains,
        config=CONFIG,
        optim=OptimConfig(epochs=4, batch_size=10, lr=5e-3, select_every=2),
        train=images(60),
        validation=images(30, 1),
    ).fit()
    write_tensors(tmp_path / "ts.safetensors", method.calibrate(model, calibration()))
    predictor = method.predictor(model, read_tensors(tmp_path / "ts.safetensors")[0])
    results = evaluate(predictor, Subject("blobs", "kernel", method.id, 0), images(60, 2))
    assert {r["metric"] for r in results.records} >= {"accuracy", "nll", "ece"}
    assert all(math.isfinite(r["value"]) for r in results.records)


# ---- what people get wrong --------------------------------------------------------------------


def test_predicting_before_calibrating_raises():
    with pytest.raises(InputError, match="ts: no temperature; call calibrate first"):
        TemperatureScaling().predictor(built(), NOTHING)


def test_a_single_class_raises():
    one = Dataset(images(5).inputs, torch.ones(5, dtype=torch.long))
    with pytest.raises(InputError, match=r"all 5 validation rows have label 1.*two classes or more"):
        TemperatureScaling().calibrate(built(), calibration(one))


def test_labels_out_of_range_raise():
    bad = Dataset(images(3).inputs, torch.tensor([0, 7, 1]))
    with pytest.raises(InputError, match=r"row 1: label 7 is outside 0\.\.2"):
        TemperatureScaling().calibrate(built(), calibration(bad))


def test_a_regression_model_raises():
    model = Mle().build(replace(CONFIG, outputs=1, likelihood="laplace"))
    with pytest.raises(InputError, match="ts: the model has a laplace likelihood"):
        TemperatureScaling().calibrate(model, calibration())
    with pytest.raises(InputError, match="ts is for classes"):
        TemperatureScaling().predictor(model, {"temperature": torch.ones(())})
    assert not TemperatureScaling.regression


@every_base
def test_outputs_that_are_not_finite_raise(base):
    model = built(base)
    with torch.no_grad():
        model.head.bias[1] = math.inf
    with pytest.raises(InputError, match="the outputs of validation row 0 are not finite"):
        TemperatureScaling(base=base).calibrate(model, calibration())


def test_the_first_row_that_is_not_finite_is_named():
    f = torch.zeros(2, 5, 3)
    f[1, 4, 0], f[0, 3, 1] = math.inf, math.nan
    with pytest.raises(InputError, match="the outputs of validation row 3 are not finite"):
        check_finite(f, "ts", "outputs", "validation")


def test_a_base_that_does_not_predict_directly_raises():
    with pytest.raises(ConfigError, match=r"ts: base='kflla' \(allowed: a method whose trained model"):
        TemperatureScaling(base=KfacLaplace())
