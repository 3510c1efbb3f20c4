import pytest
import torch

import sgpa
from sgpa.core.errors import ConfigError, InputError
from sgpa.core.types import Regression

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
