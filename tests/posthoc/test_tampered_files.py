"""Adapters and audited models whose files were changed, with a checksum that fits."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import sgpa
from sgpa.core.errors import CheckpointError, InputError, SgpaError
from sgpa.core.files import read_json, read_tensors, write_json, write_tensors
from sgpa.experiments.audit.model import open_classifier
from sgpa.posthoc.feature_gp import FeatureGp
from support.tiny_classifiers import image_classifier, text_classifier
from support.tiny_transformers import TorchEncoder, attached, batch, make

MODEL = make(TorchEncoder)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return attached(MODEL).save_pretrained(tmp_path_factory.mktemp("saved") / "adapter")


@pytest.fixture
def adapter(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "adapter")


def change(adapter, name, function):
    file = adapter / "adapter.safetensors"
    tensors, note = read_tensors(file)
    write_tensors(file, tensors | {name: function(tensors[name])}, note)


@pytest.mark.parametrize(
    ("name", "function", "complaint"),
    [
        ("gp.0.Z", lambda x: x.half(), "gp.0.Z holds torch.float16 numbers; it was damaged"),
        ("gp.1.spread", lambda x: x.to(torch.complex64), "gp.1.spread holds torch.complex64 numbers"),
        ("gp.0.lengthscale", lambda x: -x, "lengthscale is not positive"),
        ("gp.0.gain", lambda x: x * torch.nan, "gp.0.gain has entries that are no finite numbers"),
        ("novelty.held_out", lambda x: x[:0], "novelty.held_out is empty"),
        ("novelty.held_out", lambda x: x.flip(0), "no statistics of rows"),
        ("novelty.scale", lambda x: 0 * x, "no statistics of rows"),
        ("novelty.weights", lambda x: -x, "novelty.weights are not above zero"),
        ("scales.layers", lambda x: x[:1], "scales.layers has shape"),
    ],
)
def test_changed_tensors_of_an_adapter_are_one_line(adapter, name, function, complaint):
    change(adapter, name, function)
    with pytest.raises(CheckpointError, match=complaint):
        sgpa.attach(MODEL, adapter)


@pytest.mark.parametrize("name", ["gp.0.Z", "gp.head.centre", "gp.head.root"])
def test_an_adapter_in_double_precision_predicts_the_same(saved, adapter, name):
    change(adapter, name, lambda x: x.double())
    one, other = (sgpa.attach(MODEL, f).predict(batch(MODEL, 5)).probabilities for f in (saved, adapter))
    assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("head", "complaint"),
    [("encoder.layers.0.linear2", "head: its input"), ("", "head='' is not in the model")],
)
def test_an_adapter_that_names_another_head_is_one_line(adapter, head, complaint):
    file = adapter / "adapter.safetensors"
    write_tensors(file, read_tensors(file)[0])  # as in adapters that do not repeat their config
    config = read_json(adapter / "adapter.json", dict)
    write_json(adapter / "adapter.json", config | {"head": head})
    with pytest.raises(SgpaError, match=complaint):
        sgpa.attach(MODEL, adapter).predict(batch(MODEL, 5))


@pytest.mark.parametrize("changed", [{"classes": False}, {"shift": True}, {"head": ""}, {"share": 2.0}])
def test_a_config_that_the_tensors_were_not_written_with_is_one_line(adapter, changed):
    config = read_json(adapter / "adapter.json", dict)
    write_json(adapter / "adapter.json", config | changed)
    with pytest.raises(CheckpointError, match=r"adapter.json is not the one that adapter.safetensors was"):
        sgpa.attach(MODEL, adapter)


def test_a_head_of_another_width_is_one_line():
    gp = FeatureGp.fit(torch.randn(20, 4))
    with pytest.raises(InputError, match="head: its input has width 7, in training 4"):
        gp.variance(torch.randn(3, 7))


def test_an_attached_model_in_several_threads(saved):
    gp, rows = sgpa.attach(MODEL, saved), batch(MODEL, 6)

    def predict(seed):
        return gp.predict(rows, samples=3, seed=seed).probabilities

    alone = [predict(seed) for seed in range(6)]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(predict, range(6)))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))
    assert not torch.equal(alone[0], alone[1])
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in MODEL.modules())


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "3"])
def test_a_config_that_cannot_be_read_is_one_line(text, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match="is not the config of a model"):
        open_classifier(tmp_path, "cpu")


@pytest.mark.parametrize(
    "changed",
    [
        {"image_mean": {"a": 1}},
        {"size": "large"},
        {"rescale_factor": "x"},
        {"resample": 2**63},
        {"size": {"height": 2**40, "width": 8}},
    ],
)
def test_a_changed_image_processor_is_one_line(changed, tmp_path):
    image_classifier(tmp_path)
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))
    with pytest.raises(SgpaError, match=f"{tmp_path}"):
        open_classifier(tmp_path, "cpu").encode(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))


def test_a_tokenizer_with_another_length_is_one_line(tmp_path):
    text_classifier(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"model_max_length": "long"}))
    with pytest.raises(InputError, match="model_max_length of its tokenizer is not a number"):
        open_classifier(tmp_path, "cpu")
