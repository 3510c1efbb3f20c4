"""Saved models that were damaged or tampered with are refused before they answer."""

import json
from dataclasses import replace

import pytest
import torch

from sgpa.core.errors import CheckpointError, ConfigError, NumericalError, SgpaError
from sgpa.core.files import read_tensors, write_tensors
from sgpa.models import KernelAttentionConfig, ModelConfig, PatchConfig, SgpaConfig, Transformer, saving

CONFIG = ModelConfig(
    embedding=PatchConfig(image_size=8, channels=1, patch_size=4),
    attention=SgpaConfig(num_global=2),
    depth=2,
    heads=2,
    width=8,
    outputs=3,
)


@pytest.fixture
def saved(tmp_path):
    return Transformer(CONFIG).save_pretrained(tmp_path / "model")


def change_weights(folder, change):
    weights, _ = read_tensors(folder / saving.WEIGHTS)
    weights["head.weight"] = change(weights["head.weight"])
    write_tensors(folder / saving.WEIGHTS, weights)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda w: w / 0, "head.weight has entries that are NaN or infinite"),
        (lambda w: w * float("nan"), "head.weight has entries that are NaN or infinite"),
        (lambda w: w.double() * 1e300, "head.weight has entries that are NaN or infinite"),  # in float32
        (lambda w: w.to(torch.int8), "head.weight holds torch.int8 numbers, the model has torch.float32"),
        (lambda w: w > 0, "head.weight holds torch.bool numbers"),
        (lambda w: w.to(torch.complex64), "head.weight holds torch.complex64 numbers"),
    ],
)
def test_weights_that_are_not_finite_floats_are_refused(saved, change, complaint):
    change_weights(saved, change)
    with pytest.raises(CheckpointError, match=complaint):
        Transformer.from_pretrained(saved)


@pytest.mark.parametrize("samples", [None, 0])
def test_answers_that_are_not_finite_are_not_given(saved, samples):
    change_weights(saved, lambda w: w.sign() * 3e38)
    model = Transformer.from_pretrained(saved)
    with pytest.raises(NumericalError, match="the outputs of the model are not finite"):
        model.predict(torch.randn(2, 1, 8, 8), samples=samples)


def test_half_precision_weights_are_accepted(saved):
    change_weights(saved, lambda w: w.half())
    assert Transformer.from_pretrained(saved).head.weight.dtype == torch.float32


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("depth", value) for value in (0, -1, 10**9, 2.0, True, "2", None, [2])),
        *(("width", value) for value in (0, -8, 10**12)),
        *(("heads", value) for value in (0, 3, 1.0)),
        *(("outputs", value) for value in (0, 10**15)),
        *(("dropout", value) for value in (1.0, -0.1, "0", 1e999)),
        ("embedding", {"kind": "patches", "image_size": 10**6, "channels": 1, "patch_size": 4}),
        ("embedding", {"kind": "sgpa"}),
        ("attention", {"kind": "sgpa", "num_global": 2.5}),
        ("attention", {"kind": "sgpa", "whitened": 1}),
    ],
)
def test_a_config_with_impossible_values_is_refused(saved, field, value):
    file = saved / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}))
    with pytest.raises(ConfigError, match=r"^[^\n]+$"):
        Transformer.from_pretrained(saved)


def test_a_config_that_does_not_fit_the_weights_is_refused_before_a_model_is_built(saved, monkeypatch):
    file = saved / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"depth": 900}))
    monkeypatch.setattr(Transformer, "__init__", lambda *_: pytest.fail("a model was built"))
    with pytest.raises(CheckpointError, match=r"config.json has depth 900, the weights 2"):
        Transformer.from_pretrained(saved)


def test_widths_are_compared_before_anything_is_allocated(saved, monkeypatch):
    file = saved / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"width": 16}))
    build, devices = Transformer.__init__, []

    def spy(model, config):
        build(model, config)
        devices.append(model.device.type)

    monkeypatch.setattr(Transformer, "__init__", spy)
    with pytest.raises(CheckpointError, match="weights do not fit the config"):
        Transformer.from_pretrained(saved)
    assert devices == ["meta"]


def test_a_warm_start_refuses_weights_that_are_not_finite():
    point = Transformer(replace(CONFIG, attention=KernelAttentionConfig()))
    weights = point.state_dict() | {"head.bias": torch.full((3,), float("inf"))}
    with pytest.raises(CheckpointError, match=r"warm start: head.bias"):
        saving.warm_start(Transformer(CONFIG), weights)


@pytest.mark.parametrize("seed", [-1, 2**32, 2**70, 1.5, True, "0"])
def test_a_seed_has_one_range_everywhere(seed):
    with pytest.raises(SgpaError, match=r"seed=.* \(allowed: a whole number"):
        Transformer(CONFIG).predict(torch.zeros(1, 1, 8, 8), seed=seed)
