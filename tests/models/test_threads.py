"""One model in several threads; torch's flags and random states before and after."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
import torch

import sgpa
from sgpa.core import noise
from sgpa.inference.serve import serve
from sgpa.methods import McDropout, Mfvi
from sgpa.models import Transformer
from support.tiny_transformers import TorchEncoder, attached, make
from support.training_runs import CONFIG, METHODS, SGPA, blobs, trainer

X = blobs(12, 0).inputs
DROPPING = replace(CONFIG, dropout=0.5)


def in_threads(predict, seeds):
    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(predict, seeds))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("method", [SGPA, METHODS["joint"], Mfvi()])
def test_every_thread_gets_the_answers_of_its_seed(method, training):
    torch.manual_seed(0)
    model, seeds = method.build(DROPPING).train(training), [*range(8), 3, 3]

    def predict(seed):
        return model.predict(X, seed=seed, samples=3).probabilities

    alone = [predict(seed) for seed in seeds]
    together = in_threads(predict, seeds)
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))
    assert all(module.training is training for module in model.modules())


def test_dropout_of_one_thread_does_not_reach_another():
    torch.manual_seed(0)
    model = SGPA.build(DROPPING)
    dropping = McDropout().predictor(model)

    def predict(seed):
        return (dropping if seed % 2 else model).predict(X, seed=seed).probabilities

    alone = [predict(seed) for seed in range(8)]
    assert all(torch.equal(a, b) for a, b in zip(alone, in_threads(predict, range(8)), strict=True))


def test_a_service_in_several_threads():
    torch.manual_seed(0)
    fast = serve(SGPA.build(CONFIG), rows=4)

    def predict(seed):
        return fast.predict(X, seed=seed).probabilities

    alone = [predict(seed) for seed in range(6)]
    assert all(torch.equal(a, b) for a, b in zip(alone, in_threads(predict, range(6)), strict=True))


def test_a_source_of_noise_belongs_to_its_thread():
    like = torch.zeros(())
    with noise.seeded(0, like.device), ThreadPoolExecutor(1) as threads:
        inside = noise.normal((3,), like, rows=None)
        torch.manual_seed(5)
        outside = threads.submit(lambda: noise.normal((3,), like, rows=None)).result()
    torch.manual_seed(5)
    assert torch.equal(outside, torch.randn(3))
    torch.manual_seed(0)
    assert torch.equal(inside, torch.randn(3))


FITTED = ("auto", "sgpa", "sngp", "ensemble")
ENCODER = make(TorchEncoder)


def fit_blobs(method, *_):
    rows = blobs(30, 0)
    options = {"method": method, "epochs": 2, "batch_size": 30, "on_progress": lambda _: None}
    sgpa.fit(rows.inputs, rows.targets, CONFIG, **options)


def flags():
    return {
        "random": torch.get_rng_state().tolist(),
        "type": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "tf32": torch.backends.cuda.matmul.allow_tf32,
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomalies": torch.is_anomaly_enabled(),
        "inference": torch.is_inference_mode_enabled(),
    }


@pytest.mark.parametrize(
    "work",
    [
        lambda model, _: model.predict(X),
        lambda model, _: model.predict(X, samples=0),
        lambda model, _: serve(model, rows=4).predict(X),
        lambda _, folder: trainer(folder).fit(),
        lambda _, folder: Transformer.from_pretrained(trainer(folder).fit().save_pretrained(folder / "copy")),
        *(partial(fit_blobs, method) for method in FITTED),
        lambda *_: attached(ENCODER),
    ],
    ids=["predict", "closed form", "serve", "train", "load", *FITTED, "attach"],
)
def test_flags_and_random_states_are_left_as_they_were(work, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    model = SGPA.build(CONFIG)
    torch.manual_seed(11)
    before = flags()
    work(model, tmp_path)
    assert flags() == before
