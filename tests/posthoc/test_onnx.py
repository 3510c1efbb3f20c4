"""The ONNX file gives the answers of `predict`, for any number of rows and tokens."""

import importlib.util

import pytest
import torch

import sgpa
from support.tiny_transformers import TorchEncoder, attached, batch, bert, gpt2, make, vit

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.xdist_group("onnx")  # in one process: the exporter's first start takes seconds


def run(path, inputs):
    """Outputs of an ONNX file by name."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    named = inputs if isinstance(inputs, dict) else {"input_0": inputs}
    outputs = [each.name for each in session.get_outputs()]
    values = session.run(outputs, {name: value.numpy() for name, value in named.items()})
    return dict(zip(outputs, map(torch.from_numpy, values), strict=True))


def assert_same(outputs, answer, *names):
    assert list(outputs) == list(names)
    for name in names:
        torch.testing.assert_close(outputs[name], getattr(answer, name), rtol=0, atol=1e-5)


# The exporter's time grows with every layer: one model has several.
MODELS = {
    "bert": lambda: bert(num_hidden_layers=2),
    "vit": lambda: vit(num_hidden_layers=1),
    "torch": lambda: TorchEncoder(layers=1),
    "gpt2": lambda: gpt2(n_layer=1),
}


@pytest.mark.parametrize(("name", "rows"), [("bert", 1), ("vit", 6), ("torch", 6), ("gpt2", 6)])
def test_onnx_runtime_gives_the_same_answers(name, rows, tmp_path):
    model = make(MODELS[name])
    gp = attached(model)
    path = gp.export_onnx(tmp_path / "folder" / "model.onnx", batch(model, rows, seed=70))
    for n in (1, 9):
        inputs = batch(model, n, seed=71, labels=False)
        assert_same(run(path, inputs), gp.predict(inputs), "probabilities", "novelty")
    if name == "bert":
        longer = {key: torch.nn.functional.pad(value, (0, 4)) for key, value in inputs.items()}
        assert_same(run(path, longer), gp.predict(inputs), "probabilities", "novelty")
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_regressor_has_mean_variance_and_novelty(tmp_path):
    model = make(lambda: bert(num_hidden_layers=1, num_labels=1))
    batches = [batch(model, 24, seed, labels=False) for seed in range(4)]
    labelled = [rows | {"labels": torch.randn(24)} for rows in batches]
    gp = sgpa.attach(model, num_inducing=8).fit(labelled[:3]).calibrate(labelled[3:])
    model.train()
    outputs = run(gp.export_onnx(tmp_path / "model.onnx", batches[0]), batches[1])
    assert all(module.training for module in model.modules())
    assert_same(outputs, gp.predict(batches[1]), "mean", "variance", "novelty")


def test_missing_package_is_one_line(tmp_path, monkeypatch):
    model = make(bert)
    gp = attached(model)
    monkeypatch.setattr("sgpa.posthoc.onnx.find_spec", lambda _: None)
    with pytest.raises(sgpa.SgpaError, match="export_onnx needs the package onnx: pip install onnx") as error:
        gp.export_onnx(tmp_path / "model.onnx", batch(model, 2))
    assert "\n" not in str(error.value)
    assert importlib.util.find_spec("onnx")  # the patch is of our module alone


def test_values_that_are_no_tensors_are_refused(tmp_path):
    model = make(bert)
    gp = attached(model)
    with pytest.raises(sgpa.SgpaError, match="use_cache is a bool"):
        gp.export_onnx(tmp_path / "model.onnx", batch(model, 2, labels=False) | {"use_cache": False})
