"""Predicting with dropout on."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from sgpa.core.errors import ConfigError, InputError
from sgpa.core.noise import Dropout
from sgpa.data import Dataset
from sgpa.methods import Mle, Sgpa
from sgpa.methods.mc_dropout import McDropout
from sgpa.methods.mfvi import Mfvi
from sgpa.methods.sngp import Sngp
from sgpa.models import SgpaConfig, TokenConfig, Transformer
from sgpa.models.modes import evaluating
from sgpa.training.optim import OptimConfig
from sgpa.training.selection import validate
from sgpa.training.trainer import Trainer
from support.training_runs import CONFIG, METHODS

BASES = {name: METHODS[name] for name in ("kernel-mle", "sdp-mle", "sgpa")}


def images(n=4, seed=0):
    return torch.randn(n, 1, 4, 4, generator=torch.Generator().manual_seed(seed))


def built(method, **options):
    torch.manual_seed(0)
    return method.build(replace(CONFIG, **options)).eval()


@pytest.mark.parametrize("base", BASES)
def test_samples_differ_and_equal_seeds_give_equal_predictions(base):
    method = McDropout(base=BASES[base])
    model = built(method)
    predictor = method.predictor(model)
    torch.manual_seed(7)
    prediction = predictor.predict(images())
    after = torch.randn(1)
    torch.manual_seed(7)
    assert torch.equal(after, torch.randn(1))  # the caller's random state is left alone
    assert torch.equal(prediction.probabilities, predictor.predict(images()).probabilities)
    assert not torch.equal(prediction.probabilities, predictor.predict(images(), seed=1).probabilities)
    assert (prediction.mutual_information > 0).all()
    with evaluating(model, dropout=True):
        f = model.draw(images(), samples=10)
    assert torch.equal(prediction.probabilities, f.softmax(-1).mean(0))
    assert torch.pdist(f.flatten(1)).min() > 1e-3


@pytest.mark.parametrize("base", BASES)
def test_a_number_is_predicted_with_the_spread_of_its_samples(base):
    method = McDropout(base=BASES[base], samples=20)
    prediction = method.predictor(built(method, outputs=1, likelihood="laplace")).predict(images())
    assert prediction.samples.shape == (20, 4)
    assert (prediction.model_variance > 0).all()
    assert torch.allclose(prediction.variance, prediction.model_variance + prediction.data_variance)


def test_the_error_of_the_average_falls_like_one_over_the_root_of_the_samples():
    method = McDropout(samples=40_000)
    model = built(method, depth=1, dropout=0.3)
    x = images(2)
    exact = method.predictor(model).predict(x, seed=99).probabilities
    sizes = [5, 20, 80, 320]
    errors = []
    for size in sizes:
        predictor = McDropout(samples=size).predictor(model)
        prediction = torch.stack([predictor.predict(x, seed=seed).probabilities for seed in range(40)])
        errors.append((prediction - exact).square().mean().sqrt().item())
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.1)


@pytest.mark.parametrize("base", BASES)
def test_one_pass_in_batches_equals_masks_drawn_pass_by_pass_in_distribution(base):
    method = McDropout(base=BASES[base], samples=4000)
    model = built(method, depth=1)
    at_once = method.predictor(model).predict(images(1)).probabilities[0]
    with evaluating(model, dropout=True), torch.no_grad():
        p = model(images(1).expand(4000, -1, -1, -1)).f.softmax(-1)  # a mask of its own for every row
    error = (2 * p.var(0) / 4000).sqrt()
    assert ((at_once - p.mean(0)).abs() < 5 * error).all()


def test_what_comes_before_the_first_mask_is_computed_once():
    model = built(McDropout())
    rows = []
    model.embedding.register_forward_hook(lambda *call: rows.append(len(call[1][0])))
    McDropout(samples=7).predictor(model).predict(images(5))
    assert rows == [5]
    rows.clear()
    McDropout(samples=7).predictor(model).predict(images(5), batch_size=2)
    assert rows == [2, 2, 1]


@pytest.mark.parametrize("training", [True, False])
def test_modes_are_restored_after_an_error(training):
    model = built(McDropout()).train(training)
    model.norm.train(not training)  # a module with a mode of its own keeps it
    before = [m.training for m in model.modules()]
    seen = []

    def look(*_):
        seen.append({type(m): m.training for m in model.modules()})

    model.embedding.register_forward_hook(look)
    predictor = McDropout().predictor(model)
    predictor.predict(images())
    assert [m.training for m in model.modules()] == before
    assert {kind for kind, on in seen[0].items() if on} == {Dropout}
    with pytest.raises(InputError):
        predictor.predict(torch.randn(2, 3, 4, 4))
    assert [m.training for m in model.modules()] == before


def test_padding_changes_nothing_but_the_masks():
    embedding = TokenConfig(vocabulary=7, max_tokens=6, embedding_width=8)
    method = McDropout(samples=3000)
    model = built(method, embedding=embedding, depth=1)
    alone = method.predictor(model).predict(torch.tensor([[1, 2, 3]])).probabilities[0]
    ids = torch.tensor([[1, 2, 3, 0, 0, 0], [1, 2, 3, 4, 5, 6]])
    padded = method.predictor(model).predict(ids, seed=1).probabilities[0]
    assert torch.allclose(alone, padded, atol=0.01)


def test_a_model_without_dropout_raises():
    model = built(Mle(), dropout=0.0)
    with pytest.raises(ConfigError, match=r"mcd: dropout=0.0 .*all samples are equal"):
        McDropout().predictor(model)
    with pytest.raises(ConfigError, match=r"dropout=0\.0"):
        McDropout(base=Mfvi()).predictor(built(Mfvi()))


def test_bad_settings_are_reported_together():
    with pytest.raises(ConfigError, match=r"mcd: base='sngp'.*samples=0 \(allowed: 1 to 1000000\)"):
        McDropout(base=Sngp(), samples=0)


def test_training_is_the_base_s():
    def data(n, seed):
        y = torch.arange(n) % 3
        return Dataset(images(n, seed) + 2.0 * (y - 1).view(-1, 1, 1, 1), y)

    optim = OptimConfig(epochs=20, batch_size=10, lr=1e-2, select_every=5)
    parts = {"config": CONFIG, "optim": optim, "train": data(30, 0), "validation": data(30, 1)}
    method = McDropout()
    assert method.trains is method
    model = Trainer(method=method, **parts).fit()
    test = data(60, 2)
    prediction = method.predictor(model).predict(test.inputs)
    assert (prediction.label == test.targets).float().mean() > 0.85
    parts["optim"] = replace(optim, select="last")
    one, other = (Trainer(method=m, **parts).fit().state_dict() for m in (method, Mle()))
    assert all(torch.equal(one[name], other[name]) for name in other)  # only the choice of an epoch differs


def test_the_epoch_is_chosen_with_dropout_on(tmp_path):
    y = torch.arange(30) % 3
    data = Dataset(images(30, 0) + (y - 1).view(-1, 1, 1, 1), y)
    method = McDropout(samples=3)
    parts = {"config": CONFIG, "train": data, "validation": data, "directory": tmp_path}
    model = Trainer(method=method, optim=OptimConfig(epochs=1, batch_size=10), **parts).fit()
    (line,) = (tmp_path / "log.jsonl").read_text().splitlines()
    assert json.loads(line)["validation"] == validate(method.predictor(model), data)
    assert json.loads(line)["validation"] != validate(model, data)
    with pytest.raises(ConfigError, match=r"mcd: dropout=0.0 \(allowed: above 0"):
        method.build(replace(CONFIG, dropout=0.0))


def test_one_training_gives_a_model_to_each_method(tmp_path):
    y = torch.arange(60) % 3
    data = Dataset(images(60, 0) + (y - 1).view(-1, 1, 1, 1), y)
    held_out = Dataset(images(30, 1) + (y[:30] - 1).view(-1, 1, 1, 1), y[:30])
    method, optim = McDropout(samples=3), OptimConfig(epochs=12, batch_size=20, lr=3e-2, select_every=1)
    parts = {"config": CONFIG, "train": data, "validation": held_out, "optim": optim}
    plain, dropped = (Trainer(method=m, **parts).fit().state_dict() for m in (Mle(), method))
    assert any(not torch.equal(plain[name], dropped[name]) for name in plain)  # they chose different epochs

    def stop(line):
        if line["epoch"] == 7 and "step" not in line:
            raise KeyboardInterrupt

    both = {"method": Mle(), "extra_selectors": (method,), "directory": tmp_path, **parts}
    with pytest.raises(KeyboardInterrupt):
        Trainer(**both, on_progress=stop).fit()
    models = [Trainer(**both).fit()]
    models += [Transformer.from_pretrained(tmp_path / name) for name in ("model", "model-mcd")]
    for actual, expected in zip(models, (plain, plain, dropped), strict=True):
        assert all(torch.equal(actual.state_dict()[name], expected[name]) for name in expected)

    lines = []
    shutil.rmtree(tmp_path / "model-mcd")  # lost: the weights are still in the checkpoint's company
    Trainer(**both, on_progress=lines.append).fit()
    assert (tmp_path / "model-mcd" / "config.json").exists()
    assert not lines


def test_sgpa_with_dropout_at_prediction():
    off, on = BASES["sgpa"], replace(BASES["sgpa"], dropout_at_prediction=True)
    model = built(on)
    probabilities = on.predictor(model).predict(images()).probabilities
    assert torch.equal(probabilities, McDropout(base=off).predictor(model).predict(images()).probabilities)
    assert not torch.equal(probabilities, off.predictor(model).predict(images()).probabilities)
    with pytest.raises(ConfigError, match=r"sgpa: dropout_at_prediction=True \(allowed: false, or a model"):
        built(on, dropout=0.0)
    with pytest.raises(ConfigError, match=r"mcd: base='sgpa'"):
        McDropout(base=on)


def test_sgpa_with_dropout_at_prediction_selects_the_epoch_with_dropout():
    data = Dataset(images(12), torch.arange(12) % 3)
    seen = []

    class Watched(Sgpa):
        def predictor(self, *args):
            seen.append(self.dropout_at_prediction)
            return super().predictor(*args)

    method = Watched(attention=SgpaConfig(num_global=3), dropout_at_prediction=True)
    optim = OptimConfig(epochs=2, batch_size=6, select_every=1)
    Trainer(method=method, config=CONFIG, optim=optim, train=data, validation=data).fit()
    assert seen == [True, True]
