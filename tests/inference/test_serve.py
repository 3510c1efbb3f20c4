"""Served predictions are the predictor's own."""

import pytest
import torch

import sgpa
from sgpa.core.counters import FLOAT64_PASSES, counting
from sgpa.core.errors import ConfigError, InputError, NumericalError
from sgpa.inference.serve import serve, worth_serving
from sgpa.methods import McDropout, Mfvi, Mle, SampledPredictor, Sgpa
from sgpa.models import DotProductConfig, ModelConfig, SgpaConfig, TokenConfig
from support.training_runs import CONFIG
from support.training_runs import METHODS as TOGETHER

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.gpu),
]
SGPA = Sgpa(attention=SgpaConfig(num_global=3, init="paper"))
METHODS = {
    "kernel-mle": Mle(),
    "sdp-mle": Mle(attention=DotProductConfig()),
    "sgpa": SGPA,
    "cheng-boots": TOGETHER["cheng-boots"],
    "mfvi": Mfvi(),
    "dropout": McDropout(samples=3),
}


def predictor(name, device="cpu"):
    torch.manual_seed(0)
    method = METHODS[name]
    return method.predictor(method.build(CONFIG).to(device).eval())


def images(n, device="cpu", seed=1):
    return torch.randn(n, 1, 4, 4, generator=torch.Generator().manual_seed(seed)).to(device)


def assert_same(actual, expected, device):
    """To the bit on the CPU; to the rounding of TF32 on a GPU, where products with weights are made so."""
    a, b = actual.probabilities, expected.probabilities
    assert a.shape == b.shape
    assert torch.equal(a, b) if device == "cpu" else torch.allclose(a, b, atol=5e-3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", METHODS)
def test_whole_batches_are_predicted_as_they_would_be(name, device):
    own, x = predictor(name, device), images(8, device)
    fast = serve(own, rows=4)
    if name in ("kernel-mle", "sdp-mle") or device == "cpu":  # a graph's generator draws in its own order
        assert_same(fast.predict(x), own.predict(x, batch_size=4), device)
    probabilities = fast.predict(x).probabilities
    assert torch.equal(probabilities, fast.predict(x).probabilities)
    assert torch.allclose(probabilities.sum(-1), torch.ones(8, device=device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["kernel-mle", "sgpa", "dropout"])
@pytest.mark.parametrize("n", [1, 4, 6])
def test_any_number_of_images(name, n, device):
    fast, x = serve(predictor(name, device), rows=4), images(n, device)
    prediction = fast.predict(x)
    assert prediction.probabilities.shape == (n, 3)
    assert prediction.mutual_information.shape == (n,)
    assert fast.draw(x).shape == (fast.samples, n, 3)
    more = fast.predict(images(8, device, seed=2))  # leaves other images behind
    assert more.probabilities.shape == (8, 3)
    assert torch.equal(fast.predict(x).probabilities, prediction.probabilities)


def test_a_row_of_a_deterministic_model_does_not_know_its_batch():
    fast, x = serve(predictor("kernel-mle"), rows=4), images(6)
    alone = torch.cat([fast.predict(row.unsqueeze(0)).probabilities for row in x])
    assert torch.allclose(fast.predict(x).probabilities, alone, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_seeds(device):
    fast, x = serve(predictor("sgpa", device), rows=4), images(4, device)
    first = fast.predict(x, seed=3).probabilities
    assert torch.equal(first, fast.predict(x, seed=3).probabilities)
    assert not torch.equal(first, fast.predict(x, seed=4).probabilities)


@pytest.mark.parametrize("device", DEVICES)
def test_the_random_state_of_others_is_left_alone(device):
    own, x = predictor("sgpa", device), images(4, device)
    torch.manual_seed(5)
    expected = torch.randn(3, device=device)
    torch.manual_seed(5)
    serve(own, rows=4).predict(x)
    assert torch.equal(torch.randn(3, device=device), expected)


@pytest.mark.parametrize("name", ["sgpa", "dropout"])
def test_modes_are_given_back(name):
    own = predictor(name)
    model = own if name == "sgpa" else own.model
    model.train()
    fast = serve(own, rows=4)
    assert all(module.training for module in model.modules())
    prediction = fast.predict(images(4))
    assert all(module.training for module in model.modules())
    assert_same(prediction, own.predict(images(4), batch_size=4), "cpu")


def test_more_samples():
    own = SampledPredictor(predictor("sgpa"), 17)
    fast, x = serve(own, rows=4), images(8)
    assert fast.samples == 17
    assert_same(fast.predict(x), own.predict(x, batch_size=4), "cpu")
    assert serve(predictor("dropout").with_samples(5), rows=4).samples == 5


def test_one_line_says_that_there_is_no_gpu(caplog):
    serve(predictor("kernel-mle"), rows=4)
    assert [record.getMessage() for record in caplog.records] == [
        "no GPU: served predictions are neither compiled nor recorded"
    ]


def test_bytes_are_normalised_as_the_model_does():
    own, x = predictor("kernel-mle"), (images(4) * 20 + 128).clamp(0, 255).to(torch.uint8)
    assert_same(serve(own, rows=4).predict(x), own.predict(x, batch_size=4), "cpu")


def test_answers_that_are_not_finite_are_not_given():
    fast, x = serve(predictor("sgpa"), rows=4), images(4)
    x[0, 0, 0, 0] = float("nan")
    with pytest.raises(NumericalError, match=r"NaN or infinite|not finite"):
        fast.predict(x)
    with torch.no_grad():
        fast.model.head.bias.fill_(float("inf"))
    for answer in (fast.draw, fast.predict):
        with pytest.raises(NumericalError, match="outputs are not finite"):
            answer(images(4))


def test_what_cannot_be_predicted():
    fast = serve(predictor("kernel-mle"), rows=4)
    with pytest.raises(InputError, match=r"expected images \[N, 1, 4, 4\], got \[3, 1, 5, 5\]"):
        fast.predict(torch.randn(3, 1, 5, 5))
    with pytest.raises(InputError, match=r"got \[1, 4, 4\]"):
        fast.predict(torch.randn(1, 4, 4))
    with pytest.raises(InputError, match=r"inputs=\[1, 2\] \(allowed: Tensor"):
        fast.predict([1, 2])
    with pytest.raises(InputError, match="no row"):
        fast.predict(images(0))


@pytest.mark.parametrize("rows", [0, -1])
def test_rows_are_checked(rows):
    with pytest.raises(ConfigError, match="rows"):
        serve(predictor("kernel-mle"), rows=rows)


def test_something_must_be_drawn():
    with pytest.raises(ConfigError, match="samples"):
        serve(SampledPredictor(predictor("sgpa"), 0), rows=4)


def test_texts_are_not_served():
    config = ModelConfig(
        embedding=TokenConfig(vocabulary=20, max_tokens=8), depth=1, heads=2, width=8, outputs=2
    )
    with pytest.raises(InputError, match="only models of images"):
        serve(Mle().build(config), rows=4)


@pytest.mark.parametrize("name", METHODS)
def test_models_that_sample_are_worth_serving(name):
    assert worth_serving(predictor(name)) == (not name.endswith("mle"))
    assert not worth_serving(object())


def test_it_is_a_public_name():
    assert sgpa.serve is serve


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["kernel-mle", "mfvi", "sgpa"])
def test_layers_that_need_float64_get_it(name, device, caplog):
    own, x = predictor(name, device), images(8, device)
    with torch.no_grad():
        getattr(own, "model", own).layers[0].attention.W_qk.weight.mul_(3000)  # keys far from the origin
    fast = serve(own, rows=4)
    assert "float32 is too coarse" in caplog.text
    with counting() as counted:
        served = fast.predict(x)
    assert counted[FLOAT64_PASSES]
    assert_same(served, own.predict(x, batch_size=4), device)


@pytest.mark.gpu
def test_what_cannot_be_compiled_is_served_too(monkeypatch, caplog):
    def refuse(*_, **__):
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(torch, "compile", refuse)
    own, x = predictor("kernel-mle", "cuda"), images(8, "cuda")
    assert_same(serve(own, rows=4).predict(x), own.predict(x, batch_size=4), "cuda")
    assert "slower way: no compiler here" in caplog.text
