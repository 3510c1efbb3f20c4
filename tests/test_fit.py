from dataclasses import replace

import pytest
import torch

import sgpa
from sgpa.data import Dataset
from sgpa.errors import ConfigError, InputError
from sgpa.fitting import Fit
from sgpa.models import DotProductConfig, KernelAttentionConfig, SgpaConfig
from sgpa.types import Regression

CONFIG = sgpa.ModelConfig(
    embedding=sgpa.PatchConfig(image_size=4, channels=1, patch_size=2), depth=1, heads=2, width=8, outputs=2
)


def two_classes(n=40):
    y = torch.arange(n) % 2
    return torch.randn(n, 1, 4, 4) + 3.0 * (2 * y - 1).view(-1, 1, 1, 1), y


def test_tensors_in_a_calibrated_model_out(tmp_path):
    x, y = two_classes()
    seen = []
    model = sgpa.fit(x, y, CONFIG, epochs=20, batch_size=8, lr=5e-3, directory=tmp_path, report=seen.append)
    assert model.stochastic
    assert (model.predict(x).label == y).float().mean() > 0.9
    assert len(seen) == 20
    again = sgpa.fit(x, y, CONFIG, epochs=20, batch_size=8, lr=5e-3, directory=tmp_path)
    assert torch.equal(again.predict(x).probabilities, model.predict(x).probabilities)


def test_a_point_model_goes_on_and_keeps_what_it_has_learned(tmp_path):
    x, y = two_classes()
    config = replace(CONFIG, attention=KernelAttentionConfig(), dropout=0.1)
    point = Fit(epochs=20, batch_size=8, lr=5e-3).mle(Dataset(x, y), config)
    before = {name: w.clone() for name, w in point.state_dict().items()}
    seen = []
    model = sgpa.go_on(point, x, y, epochs=3, batch_size=8, directory=tmp_path, report=seen.append)
    assert all(torch.equal(w, before[name]) for name, w in point.state_dict().items())
    assert (model.stochastic, model.config.dropout, len(seen)) == (True, 0.1, 3)
    known, answers = point.predict(x), model.predict(x)
    assert (answers.label == known.label).all()
    assert (answers.probabilities - known.probabilities).abs().max() < 0.2
    assert answers.mutual_information.max() > 0  # samples differ
    again = sgpa.go_on(point, x, y, epochs=3, batch_size=8, directory=tmp_path)
    assert torch.equal(again.predict(x).probabilities, answers.probabilities)


@pytest.mark.parametrize("attention", [DotProductConfig(), SgpaConfig()])
def test_other_models_do_not_go_on(attention):
    x, y = two_classes()
    with pytest.raises(ConfigError, match="only kernel attention is the mean of a Gaussian process"):
        sgpa.go_on(sgpa.Transformer(replace(CONFIG, attention=attention)), x, y)


def test_nor_does_what_is_no_transformer_of_ours():
    x, y = two_classes()
    with pytest.raises(InputError, match=r"a Linear is no sgpa\.Transformer"):
        sgpa.go_on(torch.nn.Linear(4, 2), x, y)


def test_regression_learns_its_noise():
    torch.manual_seed(0)
    x = torch.randn(60, 1, 4, 4)
    y = x.mean((1, 2, 3))
    config = sgpa.ModelConfig(
        embedding=CONFIG.embedding, depth=1, heads=2, width=8, outputs=1, likelihood="laplace"
    )
    model = sgpa.fit(x, y, config, epochs=10, batch_size=10, lr=5e-3)
    found = model.predict(x)
    assert isinstance(found, Regression)
    assert model.likelihood.log_b != 0


def test_bad_arguments_are_refused():
    x, y = two_classes()
    with pytest.raises(ConfigError, match=r"epochs=1.*validation=1.5"):
        sgpa.fit(x, y, CONFIG, epochs=1, validation=1.5)
    with pytest.raises(InputError, match="40 inputs but 39 targets"):
        sgpa.fit(x, y[:-1], CONFIG, epochs=2)
    with pytest.raises(InputError, match="label 7"):
        sgpa.fit(x, y + 6, CONFIG, epochs=2)
