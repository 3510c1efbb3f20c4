"""Ensembles against brute-force mixtures of their members."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from torch.distributions import Laplace

from sgpa.core.errors import ConfigError, InputError
from sgpa.core.types import Classification, Regression
from sgpa.data import Dataset
from sgpa.evaluation import metrics
from sgpa.evaluation.evaluate import evaluate
from sgpa.evaluation.results import Subject
from sgpa.methods import CATALOGUE, Calibration, Mle, Sgpa
from sgpa.methods.ensemble import Ensemble, EnsemblePredictor
from sgpa.methods.sngp import Sngp
from sgpa.models import ModelConfig, PatchConfig, RandomFeatureConfig, SgpaConfig
from sgpa.training.optim import OptimConfig
from sgpa.training.selection import score
from sgpa.training.trainer import Trainer

CONFIG = ModelConfig(
    embedding=PatchConfig(image_size=4, channels=1, patch_size=2), depth=1, heads=2, width=8, outputs=3
)
SGPA = Sgpa(attention=SgpaConfig(num_global=3))
VALUES = replace(CONFIG, outputs=1, likelihood="laplace")


class Fixed:
    """Returns the same prediction for any input."""

    def __init__(self, prediction):
        self.prediction = prediction

    def predict(self, _):
        return self.prediction


def classes(samples=7, rows=5, count=3):
    p = (2 * torch.randn(samples, rows, count)).softmax(-1)
    return Classification(p.mean(0), torch.special.entr(p).sum(-1).mean(0))


def values(samples=4, rows=6, scale=0.5):
    return Regression(torch.randn(samples, rows), torch.tensor(scale))


def images(n=5):
    return torch.randn(n, 1, 4, 4)


def models(method, config=CONFIG):
    made = []
    for seed in method.member_seeds(1):
        torch.manual_seed(seed)
        made.append(method.build(config).eval())
    return made


@pytest.mark.parametrize("method", [Ensemble(base=Mle(), size=3), Ensemble(base=SGPA, size=3, id="sgpae")])
def test_an_ensemble_is_the_average_of_its_members(method):
    members = [method.predictor(model) for model in models(method)]
    x = images()
    alone = [member.predict(x) for member in members]
    prediction = method.combine(members).predict(x)
    mean = np.mean([p.probabilities.double().numpy() for p in alone], 0)
    assert np.allclose(prediction.probabilities.numpy(), mean, atol=1e-7)
    assert torch.allclose(prediction.probabilities.sum(-1), torch.ones(5))
    assert np.allclose(prediction.entropy.numpy(), -(mean * np.log(mean)).sum(-1), atol=1e-6)
    expected = np.mean([p.expected_entropy.numpy() for p in alone], 0)
    assert np.allclose(prediction.expected_entropy.numpy(), expected, atol=1e-6)
    assert (prediction.mutual_information > 0).all()


def test_disagreement_within_and_between_members_adds_up():
    members = [classes() for _ in range(4)]
    prediction = EnsemblePredictor(tuple(map(Fixed, members))).predict(images())
    within = torch.stack([p.entropy - p.expected_entropy for p in members]).mean(0)
    between = prediction.entropy - torch.stack([p.entropy for p in members]).mean(0)  # never negative: Jensen
    assert (between > 0).all()
    assert torch.allclose(prediction.mutual_information, within + between, atol=1e-6)
    # members that all say the same are one member
    same = EnsemblePredictor((Fixed(members[0]),) * 3).predict(images())
    assert torch.allclose(same.probabilities, members[0].probabilities)
    assert torch.allclose(same.mutual_information, members[0].mutual_information, atol=1e-6)


def test_the_mixture_of_values_keeps_the_scale_of_every_sample():
    members = [values(scale=b) for b in (0.2, 1.0, 3.0)]
    prediction = EnsemblePredictor(tuple(map(Fixed, members))).predict(images())
    y = torch.randn(6)
    f = torch.stack([p.samples for p in members]).double().numpy()  # [E, S, B]
    b = np.array([p.scale.item() for p in members])[:, None, None]
    log_density = -np.abs(y.double().numpy() - f) / b - np.log(2 * b)
    nll = -(logsumexp(log_density, axis=(0, 1)) - np.log(12)).mean()
    assert metrics.laplace_mixture_nll(prediction.samples, prediction.scale, y) == pytest.approx(nll)
    assert score(prediction, y)["nll"] == pytest.approx(nll)
    records = evaluate(
        Fixed(prediction), Subject("made-up", "kernel", "de", 0), Dataset(torch.zeros(6, 1), y)
    )
    assert {r["metric"]: r["value"] for r in records.records}["nll"] == pytest.approx(nll)
    # a mixture's mean and variance, by drawing from it
    draws = torch.stack([Laplace(p.samples, p.scale).sample((20_000,)) for p in members]).flatten(0, 2)
    assert torch.allclose(prediction.mean, draws.mean(0), atol=0.05)
    assert torch.allclose(prediction.variance, draws.var(0), rtol=0.05)
    assert torch.allclose(prediction.data_variance, torch.full((6,), 2 * (0.2**2 + 1 + 9) / 3))


def test_ensembles_of_ensembles_keep_every_scale():
    pairs = [
        EnsemblePredictor((Fixed(values(scale=a)), Fixed(values(scale=b))))
        for a, b in ((1.0, 2.0), (3.0, 4.0))
    ]
    prediction = EnsemblePredictor(tuple(pairs)).predict(images())
    assert prediction.scale.flatten().tolist() == [b for b in (1.0, 2.0, 3.0, 4.0) for _ in range(4)]


@pytest.mark.parametrize("method", [Ensemble(base=Mle(), size=3), Ensemble(base=SGPA, size=3, id="sgpae")])
def test_regression_models_are_mixed(method):
    made = models(method, VALUES)
    for i, model in enumerate(made):
        torch.nn.init.constant_(model.likelihood.log_b, float(i))
    prediction = method.combine([method.predictor(model) for model in made]).predict(images())
    samples = 10 if method.id == "sgpae" else 1
    assert prediction.samples.shape == (3 * samples, 5)
    assert torch.allclose(prediction.scale[::samples, 0].log(), torch.arange(3.0))
    assert (prediction.model_variance > 0).all()


def test_members_are_trained_by_the_base_with_distinct_seeds():
    method = Ensemble(base=Mle(), size=2)
    assert method.trains == Mle()
    assert method.member_seeds(3) == (6, 7)
    assert len({s for seed in range(4) for s in method.member_seeds(seed)}) == 8
    y = torch.arange(30) % 3
    data = Dataset(images(30) + 2.0 * (y - 1).view(-1, 1, 1, 1), y)
    optim = OptimConfig(epochs=10, batch_size=10, lr=2e-2, select_every=5)
    parts = {"config": CONFIG, "optim": optim, "train": data, "validation": data}
    fitted = [Trainer(method=method.trains, seed=seed, **parts).fit() for seed in method.member_seeds(0)]
    prediction = method.combine([method.predictor(model) for model in fitted]).predict(data.inputs)
    assert (prediction.label == y).float().mean() > 0.8


def test_every_member_is_calibrated_by_the_base():
    base = Sngp(head=RandomFeatureConfig(features=16))
    method = Ensemble(base=base, size=2, id="sngpe")
    data = Dataset(images(9), torch.arange(9) % 3)
    made, both = models(method), Calibration(data, data)
    members = [method.predictor(model, method.calibrate(model, both)) for model in made]
    prediction = method.combine(members).predict(data.inputs)
    expected = [base.predictor(m, base.calibrate(m, both)).predict(data.inputs).probabilities for m in made]
    assert torch.allclose(prediction.probabilities, torch.stack(expected).mean(0))
    assert not method.regression
    assert Ensemble(base=Mle()).regression


def test_the_fitted_temperature_calibrates_the_average():
    torch.manual_seed(0)
    truth = 2 * torch.randn(4000, 4, dtype=torch.float64)  # labels come from these logits
    y = torch.distributions.Categorical(logits=truth).sample()
    sure = [(truth + 1.5 * torch.randn_like(truth)).div(1.3).softmax(-1) for _ in range(5)]
    members = [Fixed(Classification(p, torch.special.entr(p).sum(-1))) for p in sure]
    data = Dataset(torch.zeros(4000, 1), y)
    method = Ensemble(base=Mle(), size=5, fit_temperature=True)
    calibration = method.calibrate_ensemble(members, data)
    assert calibration["temperature"] < 1  # the average is under-confident
    plain = EnsemblePredictor(tuple(members)).predict(y)
    cooled = method.combine(members, calibration).predict(y)
    p, q = plain.probabilities.numpy(), cooled.probabilities.numpy()
    expected = p ** (1 / float(calibration["temperature"]))
    assert np.allclose(q, expected / expected.sum(-1, keepdims=True), atol=1e-12)
    assert metrics.nll(q, y) < metrics.nll(p, y)
    assert metrics.ece(q, y) < 0.5 * metrics.ece(p, y)
    assert np.array_equal(p.argmax(-1), q.argmax(-1))
    kept = cooled.expected_entropy > 0
    assert torch.allclose(cooled.mutual_information[kept], plain.mutual_information[kept], atol=1e-9)
    assert (cooled.mutual_information >= 0).all()

    assert Ensemble(base=Mle(), size=5).calibrate_ensemble(members, data) == {}
    with pytest.raises(InputError, match="temperature"):
        method.combine(members)
    with pytest.raises(InputError, match="only probabilities of classes"):
        method.calibrate_ensemble([Fixed(values())] * 5, data)


def test_another_number_of_samples_keeps_the_temperature():
    torch.manual_seed(0)
    method = Ensemble(base=SGPA, size=2, id="sgpae", fit_temperature=True)
    members = [method.predictor(model) for model in models(method)]
    tempered = method.combine(members, {"temperature": torch.tensor(0.25)})
    x = images()
    expected = EnsemblePredictor(tuple(m.with_samples(4) for m in members), 0.25).predict(x).probabilities
    assert torch.equal(tempered.with_samples(4).predict(x).probabilities, expected)
    untempered = EnsemblePredictor(tuple(m.with_samples(4) for m in members)).predict(x).probabilities
    assert (expected - untempered).abs().max() > 0.05  # a lost temperature would show


def test_one_validation_class_gives_no_temperature_and_a_warning(caplog):
    method = Ensemble(base=Mle(), size=2, fit_temperature=True)
    members = [Fixed(classes(rows=6)) for _ in range(2)]
    one_class = Dataset(torch.zeros(6, 1), torch.full((6,), 2))
    calibration = method.calibrate_ensemble(members, one_class)
    assert float(calibration["temperature"]) == 1
    assert "de: all 6 validation rows have label 2" in caplog.text
    x = torch.zeros(6, 1)
    assert torch.equal(
        method.combine(members, calibration).predict(x).probabilities,
        EnsemblePredictor(tuple(members)).predict(x).probabilities,
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_members_are_averaged_in_float32(dtype):
    p = torch.tensor([[1.0, 0.0], [0.75, 0.25]], dtype=dtype)
    member = Fixed(Classification(p, torch.zeros(2, dtype=dtype)))
    prediction = EnsemblePredictor((member, member), temperature=2.0).predict(images())
    assert prediction.probabilities.dtype == prediction.entropy.dtype == torch.float32
    assert torch.allclose(prediction.probabilities.sum(-1), torch.ones(2))
    cooled = torch.tensor([0.75, 0.25]).sqrt()
    assert torch.allclose(prediction.probabilities[1], cooled / cooled.sum())
    if dtype == torch.float16:  # a zero means less than 2^-24, not the smallest float32
        assert metrics.nll(member.prediction.probabilities[:1], [1]) == pytest.approx(
            24 * np.log(2), rel=1e-4
        )


def test_names_and_sizes():
    assert (CATALOGUE["de"].id, CATALOGUE["sgpae"].id) == ("de", "sgpae")
    assert (CATALOGUE["de"].size, CATALOGUE["sgpae"].base.id) == (5, "sgpa")
    assert CATALOGUE["de"] == Ensemble(base=Mle())
    with pytest.raises(ConfigError, match=r"ensemble: size=0 \(allowed: 1 or more\)"):
        Ensemble(base=Mle(), size=0)


def test_members_that_do_not_match_raise():
    with pytest.raises(InputError, match="needs as many members, not 0"):
        Ensemble(base=Mle()).combine([])
    with pytest.raises(InputError, match="at least one member"):
        EnsemblePredictor(())
    for first, second, message in (
        (classes(count=3), classes(count=4), r"different numbers of classes: \[3, 4\]"),
        (classes(), values(), "all predict classes, or all predict values"),
        (values(samples=1), values(samples=10), r"different numbers of samples: \[1, 10\]"),
    ):
        with pytest.raises(InputError, match=message):
            EnsemblePredictor((Fixed(first), Fixed(second))).predict(images())


def test_scales_that_do_not_match_the_samples_raise():
    with pytest.raises(InputError, match=r"scale has shape \(2,\).*\[3, 1\]"):
        metrics.laplace_mixture_nll(np.zeros((3, 2)), [1.0, 1.0], [0.0, 0.0])
    with pytest.raises(InputError, match=r"scale=-1.0; the Laplace scale must be positive"):
        metrics.laplace_mixture_nll(np.zeros((2, 2)), [[1.0], [-1.0]], [0.0, 0.0])
