"""No method answers with numbers that are not finite."""

from dataclasses import replace

import pytest
import torch
from tests.support.training_runs import CONFIG, blobs

from sgpa.core.errors import CheckpointError, InputError, NumericalError
from sgpa.core.types import Classification, Regression
from sgpa.methods import (
    Calibration,
    Ensemble,
    KfacLaplace,
    McDropout,
    Mfvi,
    Mle,
    Sgpa,
    Sngp,
    TemperatureScaling,
)

METHODS = {
    "mle": Mle(),
    "mcd": McDropout(samples=2),
    "ts": TemperatureScaling(),
    "de": Ensemble(base=Mle(), size=1),
    "kflla-probit": KfacLaplace(),
    "kflla-monte-carlo": KfacLaplace(predictive="monte-carlo"),
    "mfvi": Mfvi(),
    "sgpa": Sgpa(),
    "sngp-monte-carlo": Sngp(),
    "sngp-mean-field": Sngp(predictive="mean-field"),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_model_that_overflows_gives_no_answer(name):
    method, rows = METHODS[name], blobs(30, 0)
    torch.manual_seed(0)
    model = method.build(replace(CONFIG, dropout=0.1)).eval()
    calibrated = method.calibrate(model, Calibration(rows, rows))
    member = method.predictor(model, calibrated)
    predictor = method.combine([member], method.calibrate_ensemble([member], rows))
    assert predictor.predict(rows.inputs).score.isfinite().all()
    with torch.no_grad():
        model.norm.weight.fill_(3e38)
    with pytest.raises(NumericalError, match="the outputs of the model are not finite"):
        predictor.predict(rows.inputs)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["mle", "mcd"])
def test_values_that_are_not_finite_are_not_given(name, bad):
    method = METHODS[name]
    model = method.build(replace(CONFIG, dropout=0.1, outputs=1, likelihood="laplace")).eval()
    with torch.no_grad():
        model.head.bias.fill_(bad)
    with pytest.raises(NumericalError, match="the outputs of the model are not finite"):
        method.predictor(model).predict(blobs(5, 0).inputs)


@pytest.mark.parametrize(
    "make",
    [
        lambda bad: Classification(torch.tensor([[0.5, bad]]), torch.zeros(1)),
        lambda bad: Classification(torch.tensor([[0.5, 0.5]]), torch.tensor([bad])),
        lambda bad: Regression(torch.tensor([[0.5, bad]]), torch.tensor(1.0)),
        lambda bad: Regression(torch.tensor([[0.5]]), torch.tensor(bad)),
    ],
)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_no_prediction_has_numbers_that_are_not_finite(make, bad):
    with pytest.raises(NumericalError, match="the prediction is not finite"):
        make(bad)


@pytest.mark.parametrize("log_b", [100.0, 1e30])
def test_a_scale_that_overflows_gives_no_answer(log_b):
    model = Mle().build(replace(CONFIG, outputs=1, likelihood="laplace")).eval()
    with torch.no_grad():
        model.likelihood.log_b.fill_(log_b)
    with pytest.raises(NumericalError, match="the prediction is not finite"):
        model.predict(blobs(5, 0).inputs)


@pytest.mark.parametrize(("samples", "scale"), [((3,), ()), ((2, 3), (3,)), ((2, 3), (3, 1)), ((), ())])
def test_samples_and_scale_of_values_belong_together(samples, scale):
    with pytest.raises(InputError, match=r"allowed: \[S, B\], and \[\] or \[S, 1\]"):
        Regression(torch.zeros(samples), torch.ones(scale))
    with pytest.raises(InputError, match="floating-point numbers"):
        Regression(torch.zeros(2, 3).long(), torch.tensor(1.0))


@pytest.mark.parametrize("name", ["g", "a", "delta"])
def test_a_laplace_posterior_with_negative_precisions_is_refused(name):
    method, rows = METHODS["kflla-probit"], blobs(30, 0)
    model = method.build(CONFIG).eval()
    calibrated = method.calibrate(model, Calibration(rows, rows))
    with pytest.raises(InputError, match="g, a or delta of the calibration are negative"):
        method.predictor(model, {**calibrated, name: -1 - calibrated[name]})


def test_a_saved_sngp_without_its_covariance_is_refused():
    method = METHODS["sngp-monte-carlo"]
    model = method.build(CONFIG).eval()
    with pytest.raises(InputError, match="sngp: no covariance"):
        method.predictor(model, {})
    with pytest.raises(CheckpointError, match=r"sngp: covariance holds torch.bool numbers"):
        method.predictor(model, {"covariance": torch.ones(1024, 1024).bool()})
    assert method.predictor(model).covariance is None  # during training


def test_tensors_of_a_prediction_are_on_one_device():
    away = torch.zeros(1, device="meta")
    with pytest.raises(InputError, match="Classification: tensors on cpu and on meta"):
        Classification(torch.tensor([[0.5, 0.5]]), away)
    with pytest.raises(InputError, match="Regression: tensors on cpu and on meta"):
        Regression(torch.zeros(2, 3), away)
