"""Vector and matrix scaling as methods; their fits are tested in test_scaling."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy, nll_loss

from sgpa.core.errors import CheckpointError, ConfigError, InputError
from sgpa.data import Dataset
from sgpa.methods import Calibration, MatrixScaling, Mle, Sgpa, TemperatureScaling, VectorScaling
from sgpa.methods.scaling import matrix_scaling, vector_scaling
from sgpa.models import DotProductConfig
from support.training_runs import CONFIG, blobs

METHODS = {"vs": VectorScaling(), "ms": MatrixScaling(base=Mle(attention=DotProductConfig()))}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def model_of(method):
    """It favours the first class."""
    torch.manual_seed(0)
    model = method.build(CONFIG).eval()
    with torch.no_grad():
        model.head.weight.mul_(5)
        model.head.bias.copy_(torch.tensor([3.0, 0.0, 0.0]))
    return model


def data():
    return Calibration(blobs(30, 0), blobs(200, 1))


@every_method
def test_predictions_are_those_of_the_fitted_map(method):
    model, rows = model_of(method), data()
    f = model(rows.validation.inputs).f.detach()
    fitted = {"vs": vector_scaling, "ms": matrix_scaling}[method.id](f, rows.validation.targets)
    x = blobs(20, 2).inputs
    expected = fitted.logits(model(x).f).softmax(-1).float()
    answer = method.predictor(model, method.calibrate(model, rows)).predict(x)
    torch.testing.assert_close(answer.probabilities, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(answer.expected_entropy, answer.entropy, rtol=1e-5, atol=1e-6)


@every_method
def test_held_out_rows_are_predicted_better_than_by_a_temperature(method):
    """A favoured class is what a temperature cannot mend."""
    model, rows = model_of(method), data()
    x, y = rows.validation.inputs, rows.validation.targets
    tempered = TemperatureScaling(base=method.base)
    nll = [
        float(nll_loss(each.predictor(model, each.calibrate(model, rows)).predict(x).probabilities.log(), y))
        for each in (method, tempered)
    ]
    assert nll[0] < nll[1] - 0.01
    assert nll[1] <= float(cross_entropy(model(x).f.detach(), y)) + 1e-6


@every_method
def test_nothing_is_sampled(method):
    model = model_of(method)
    predictor = method.predictor(model, method.calibrate(model, data()))
    assert predictor.with_samples(0) is predictor
    with pytest.raises(InputError, match="samples=3"):
        predictor.with_samples(3)


@every_method
def test_bad_input_is_refused(method):
    model = model_of(method)
    with pytest.raises(ConfigError, match=r"base='sgpa' \(allowed: mle\)"):
        replace(method, base=Sgpa())
    with pytest.raises(InputError, match="no weight and no offset; call calibrate first"):
        method.predictor(model)
    one = Dataset(blobs(12, 0).inputs, torch.zeros(12, dtype=torch.int64))
    with pytest.raises(InputError, match="two classes or more"):
        method.calibrate(model, Calibration(blobs(30, 0), one))
    saved = method.calibrate(model, data())
    with pytest.raises(CheckpointError, match="weight has shape"):
        method.predictor(model, saved | {"weight": torch.ones(2, 2, 2)})
    with torch.no_grad():
        model.head.bias[0] = float("nan")
    with pytest.raises(InputError, match="outputs of validation row 0 are not finite"):
        method.calibrate(model, data())
