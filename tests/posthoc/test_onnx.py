"""The ONNX file gives the answers of `predict`, for any number of rows and tokens."""

import importlib.util

import pytest
import torch

import sgpa
from support.tiny_transformers import TorchEncoder, attached, batch, bert, gpt2, make, vit

onnxruntime = pytest.importorskip("onnxruntime")


def run(path, inputs):
    """Outputs of an ONNX file by name."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    named = inputs if isinstance(inputs, dict) else {"input_0": inputs}
    outputs = [each.name for each in session.get_outputs()]
    values = session.run(outputs, {name: value.numpy() for name, value in named.items()})
    return dict(zip(outputs, map(torch.from_numpy, values), strict=True))


@pytest.mark.parametrize("build", [bert, vit, TorchEncoder, gpt2])
def test_onnx_runtime_gives_the_same_answers(build, tmp_path):
    model = make(build)
    gp = attached(model)
    path = gp.export_onnx(tmp_path / "model.onnx", batch(model, 6, seed=70))
    for rows in (1, 9):
        inputs = batch(model, rows, seed=71, labels=False)
        found, answer = run(path, inputs), gp.predict(inputs)
        assert list(found) == ["probabilities", "novelty"]
        torch.testing.assert_close(found["probabilities"], answer.probabilities, rtol=0, atol=1e-5)
        torch.testing.assert_close(found["novelty"], answer.novelty, rtol=0, atol=1e-5)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_longer_padding_and_a_single_row_as_example(tmp_path):
    model = make(bert)
    gp = attached(model)
    path = gp.export_onnx(tmp_path / "folder" / "model.onnx", batch(model, 1, seed=70, labels=False))
    inputs = batch(model, 5, seed=72, labels=False)
    longer = {key: torch.nn.functional.pad(value, (0, 4)) for key, value in inputs.items()}
    found, answer = run(path, longer), gp.predict(inputs)
    torch.testing.assert_close(found["probabilities"], answer.probabilities, rtol=0, atol=1e-5)
    torch.testing.assert_close(found["novelty"], answer.novelty, rtol=0, atol=1e-5)


def test_regressor_has_mean_variance_and_novelty(tmp_path):
    model = make(lambda: bert(num_labels=1))
    batches = [batch(model, 24, seed, labels=False) for seed in range(4)]
    labelled = [rows | {"labels": torch.randn(24)} for rows in batches]
    gp = sgpa.attach(model, num_inducing=8).fit(labelled[:3]).calibrate(labelled[3:])
    found = run(gp.export_onnx(tmp_path / "model.onnx", batches[0]), batches[1])
    answer = gp.predict(batches[1])
    for name in ("mean", "variance", "novelty"):
        torch.testing.assert_close(found[name], getattr(answer, name), rtol=0, atol=1e-5)


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
