"""No method answers with numbers that are not finite."""

from dataclasses import replace

import pytest
import torch
from tests.support.training_runs import CONFIG, blobs

from sgpa.core.errors import NumericalError
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
