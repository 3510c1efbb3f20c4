"""SGPA with a GP over what its head reads."""

from dataclasses import replace

import pytest
import torch

import sgpa
from sgpa.core.errors import CheckpointError, ConfigError, InputError
from sgpa.core.files import read_tensors, write_tensors
from sgpa.data import Dataset
from sgpa.methods import Calibration, GpHead, Mle, Sgpa
from sgpa.methods.gp_head import ROWS, _some
from sgpa.models import ModelConfig, SgpaConfig
from sgpa.models.modes import evaluating
from sgpa.models.pooled_features import pooled_features
from sgpa.posthoc.feature_gp import FeatureGp
from support.training_runs import CONFIG, blobs

BASES = {
    "orthogonal": Sgpa(attention=SgpaConfig(num_global=3)),
    "cheng-boots": Sgpa(attention=SgpaConfig(form="cheng-boots", num_global=3)),
    "dropout": Sgpa(attention=SgpaConfig(num_global=3), dropout_at_prediction=True),
}
every_base = pytest.mark.parametrize("base", BASES.values(), ids=BASES)
WITH_DROPOUT = replace(CONFIG, dropout=0.2)


def model_of(base):
    torch.manual_seed(0)
    model = base.build(WITH_DROPOUT).eval()
    with torch.no_grad():
        model.head.weight.mul_(10)  # overconfident
    return model


def data():
    return Calibration(blobs(90, 0), blobs(60, 1))


def far(n):
    """Images that no class is like."""
    return 8 * torch.randn(n, 1, 4, 4, generator=torch.Generator().manual_seed(5))


@every_base
def test_a_prediction_is_the_equation_written_out(base):
    method, model, rows = GpHead(base=base), model_of(base), data()
    saved = method.calibrate(model, rows)
    x = blobs(12, 2).inputs
    answer = method.predictor(model, saved).predict(x, seed=3)
    with evaluating(model, dropout=base.dropout_at_prediction), torch.no_grad():
        f = model.draw(x, seed=3)  # [S, N, K]
    gp = FeatureGp.fit(pooled_features(model, _some(rows.train).inputs).head)
    v = gp.variance(pooled_features(model, x).head)  # [N]
    T = (saved["scales.data"] + torch.pi / 8 * saved["scales.layers"][0] * v).sqrt()
    expected = (f / T.view(1, -1, 1)).softmax(-1).mean(0)
    torch.testing.assert_close(answer.probabilities, expected.to(answer.probabilities), rtol=1e-4, atol=1e-5)


@every_base
def test_held_out_rows_are_predicted_no_worse_than_by_sgpa_and_far_ones_less_surely(base):
    method, model, rows = GpHead(base=base), model_of(base), data()
    predictor = method.predictor(model, method.calibrate(model, rows))
    plain = base.predictor(model)
    x, y = rows.validation.inputs, rows.validation.targets
    nll = [torch.nn.functional.nll_loss(p.predict(x).probabilities.log(), y) for p in (predictor, plain)]
    assert nll[0] <= nll[1] + 1e-4
    ours, theirs = (p.predict(far(40)) for p in (predictor, plain))
    assert ours.entropy.mean() > theirs.entropy.mean() + 0.02
    assert (ours.mutual_information >= 0).all()


def test_the_same_seed_gives_the_same_answer_and_samples_can_be_chosen():
    method, model = GpHead(base=BASES["orthogonal"]), model_of(BASES["orthogonal"])
    predictor = method.predictor(model, method.calibrate(model, data()))
    x = blobs(9, 4).inputs
    assert torch.equal(predictor.predict(x, seed=1).probabilities, predictor.predict(x, seed=1).probabilities)
    few = predictor.with_samples(2)
    assert not torch.equal(few.predict(x).probabilities, predictor.predict(x).probabilities)
    with pytest.raises(InputError, match=r"samples=0: a GP head .* \(allowed: 1 or more\)"):
        predictor.with_samples(0)
    with pytest.raises(InputError, match="samples=-2"):
        predictor.with_samples(-2)


def test_a_saved_calibration_predicts_the_same_and_a_damaged_one_is_refused(tmp_path):
    method, model = GpHead(base=BASES["orthogonal"]), model_of(BASES["orthogonal"])
    saved = method.calibrate(model, data())
    write_tensors(tmp_path / "calibrated.safetensors", saved)
    read = read_tensors(tmp_path / "calibrated.safetensors")[0]
    x = blobs(9, 4).inputs
    expected = method.predictor(model, saved).predict(x).probabilities
    assert torch.equal(method.predictor(model, read).predict(x).probabilities, expected)
    for changed in (
        {name: value for name, value in read.items() if name != "head.root"},
        read | {"scales.layers": torch.zeros(2)},
        read | {"head.centre": torch.zeros(3)},
    ):
        with pytest.raises(CheckpointError):
            method.predictor(model, changed)


def test_what_it_cannot_do_is_refused():
    method, model = GpHead(base=BASES["orthogonal"]), model_of(BASES["orthogonal"])
    with pytest.raises(ConfigError, match=r"base='mle' \(allowed: sgpa\)"):
        GpHead(base=Mle())
    with pytest.raises(InputError, match="call calibrate first"):
        method.predictor(model)
    one = Dataset(blobs(12, 0).inputs, torch.zeros(12, dtype=torch.int64))
    with pytest.raises(InputError, match="two classes or more"):
        method.calibrate(model, Calibration(blobs(30, 0), one))
    values = Mle().build(ModelConfig(embedding=CONFIG.embedding, outputs=1, likelihood="laplace"))
    with pytest.raises(InputError, match="predicts numbers"):
        method.calibrate(values, data())
    with torch.no_grad():
        model.head.bias[0] = float("nan")
    with pytest.raises(InputError, match="not finite"):
        method.calibrate(model, data())


def test_many_training_rows_are_read_in_part():
    assert len(_some(blobs(ROWS + 9, 0))) == ROWS
    assert len(_some(blobs(9, 0))) == 9


@pytest.mark.slow
def test_fit_takes_it_by_name():
    rows = blobs(120, 0)
    fitted = sgpa.fit(rows.inputs, rows.targets, method="gp-head", config=CONFIG, epochs=2)
    assert fitted.chosen == "sgpah"
    assert fitted.predict(blobs(10, 1).inputs).probabilities.shape == (10, 3)
