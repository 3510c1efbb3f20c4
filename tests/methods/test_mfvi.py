"""Random weights: their divergence, the estimators of a pass, and training with them."""

from dataclasses import replace

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from sgpa.core import noise
from sgpa.core.errors import ConfigError
from sgpa.core.inputs import Batch, Graphs, Words
from sgpa.data import Dataset
from sgpa.gp.objective import Progress
from sgpa.methods import Mle
from sgpa.methods.mfvi import Mfvi
from sgpa.models import (
    DotProductConfig,
    GraphConfig,
    KernelAttentionConfig,
    MeanFieldConfig,
    ModelConfig,
    PatchConfig,
    TokenConfig,
    Transformer,
    WordsConfig,
)
from sgpa.models.bayesian import BayesianLinear, bayesian_maps, drawing
from sgpa.models.saving import warm_start
from sgpa.training.optim import OptimConfig
from sgpa.training.trainer import Trainer

PATCHES = PatchConfig(image_size=4, channels=1, patch_size=2)
CONFIG = ModelConfig(embedding=PATCHES, depth=2, heads=2, width=8, outputs=3, pooling="sequence")
MFVI = Mfvi(weights=MeanFieldConfig(initial_std=0.05))
SDP = replace(MFVI, attention=DotProductConfig())
PROGRESS = Progress(0.5, 100)
REPEATS = 8000


def images(n=5):
    return torch.randn(n, 1, 4, 4)


def texts():
    return torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0]])


def graphs():
    nodes = torch.tensor([[0, 1, 2], [3, 1, -1]])
    edges = torch.tensor([[[0, 1], [1, 0], [1, 2], [2, 1]], [[0, 1], [1, 0], [-1, -1], [-1, -1]]])
    types = torch.tensor([[0, 0, 1, 1], [2, 2, -1, -1]])
    return Graphs(nodes, edges, types, torch.randn(2, 3, 3))


def words():
    return Words(texts(), torch.randn(2, 4, 2, 5))


INPUTS = {
    "images": (PATCHES, images),
    "texts": (TokenConfig(vocabulary=7, max_tokens=4, embedding_width=6), texts),
    "plain texts": (TokenConfig(vocabulary=7, max_tokens=4, embedding_width=8), texts),
    "graphs": (GraphConfig(node_types=4, edge_types=3, identifier_width=3), graphs),
    "words": (WordsConfig(vocabulary=7, features=5, layers=2, max_tokens=4, embedding_width=6), words),
}


def blobs(n, seed):
    """Three classes of 4 x 4 images that differ in their mean."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    return Dataset(torch.randn(n, 1, 4, 4, generator=generator) + 2.0 * (y - 1).view(-1, 1, 1, 1), y)


def brightness(n, seed):
    """Images and ten times their mean brightness."""
    x = torch.randn(n, 1, 1, 1, generator=torch.Generator().manual_seed(seed)).expand(-1, 1, 4, 4)
    return Dataset(x, 10 * x.mean((1, 2, 3)))


def layer():
    """A map in float64 with unequal standard deviations of about one."""
    torch.manual_seed(1)
    made = BayesianLinear(3, 2).double()
    torch.nn.init.normal_(made.rho, 0.5, 0.5)
    return made


def draws(estimator, x):
    """Many independent passes over x [B, T, I], [R, B, T, O]."""
    made = layer()
    if estimator == "drawing":
        with drawing(made, REPEATS):
            return made, made(x.repeat(REPEATS, 1, 1)).unflatten(0, (REPEATS, -1)).detach()
    with torch.no_grad():
        return made, torch.stack([made(x) for _ in range(REPEATS)])


@pytest.mark.parametrize("prior_std", [0.3, 1.0, 2.0])
def test_the_divergence_is_that_of_torch(prior_std):
    model = replace(MFVI, weights=replace(MFVI.weights, prior_std=prior_std)).build(CONFIG)
    for m in bayesian_maps(model):
        torch.nn.init.normal_(m.rho, -2, 1)
    loss = MFVI.loss(model, Batch(images(3), torch.tensor([0, 1, 2])), PROGRESS)
    pairs = ((Normal(m.weight, m.std), Normal(torch.zeros(()), prior_std)) for m in bayesian_maps(model))
    assert torch.allclose(loss.kl_g, sum(kl_divergence(q, p).sum() for q, p in pairs))
    assert loss.kl_a == 0
    assert loss.weight_g == 1 / 100
    assert torch.allclose(loss.total, loss.nll + loss.kl_g / 100)


def test_a_tiny_deviation_has_a_finite_divergence():
    made = BayesianLinear(3, 2)
    torch.nn.init.constant_(made.rho, -60.0)  # its variance is zero in float32
    assert made.kl().isfinite()


@pytest.mark.parametrize("estimator", ["flipout", "drawing"])
def test_every_estimator_has_the_moments_of_random_weights(estimator):
    x = torch.randn(2, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    made, y = draws(estimator, x)  # [R, B, T, O]
    mean = torch.nn.functional.linear(x, made.weight, made.bias)
    # Cov(y_t, y_u) over draws of W for tokens t, u of any two sequences: sum_i x_ti x_ui std_oi^2
    covariance = torch.einsum("bti,cui,oi->obtcu", x, x, made.std.square())  # [O, B, T, B, T]
    variance = torch.einsum("obtbt->bto", covariance)
    assert ((y.mean(0) - mean).abs() < 5 * (variance / REPEATS).sqrt()).all()
    assert torch.allclose(y.var(0), variance, rtol=0.12)
    centred = y - mean
    empirical = torch.einsum("rbto,rcuo->obtcu", centred, centred) / REPEATS
    within, across = empirical[:, 0, :, 0], empirical[:, 0, :, 1]  # [O, T, T]
    error = 0.08 * variance.max()
    together = covariance[:, 0, :, 0]
    assert together[:, ~torch.eye(3, dtype=torch.bool)].abs().max() > 3 * error  # the tests below can fail
    assert covariance[:, 0, :, 1].abs().max() > 3 * error
    assert (within - together).abs().max() < error  # all tokens of a sequence see one weight matrix
    if estimator == "drawing":  # and so do all sequences
        assert (across - covariance[:, 0, :, 1]).abs().max() < error
    else:
        assert across.abs().max() < error


def test_flipout_has_gradients_of_lower_variance_than_one_weight_matrix_for_all_sequences():
    torch.manual_seed(2)
    method, data, spread = replace(MFVI, weights=MeanFieldConfig(initial_std=0.1)), blobs(24, 0), {}
    model = method.build(replace(CONFIG, depth=1))
    named = {n: p for n, p in model.named_parameters() if n.endswith(("rho", "weight")) and "norm" not in n}
    for estimator, samples in (("flipout", None), ("shared", 1)):
        torch.manual_seed(0)
        gradients = []
        for _ in range(150):
            loss = model.likelihood.nll(model(data.inputs, samples=samples).f, data.targets).mean()
            gradients.append(torch.autograd.grad(loss, list(named.values())))
        for kind in ("weight", "rho"):
            columns = [k for k, name in enumerate(named) if name.endswith(kind)]
            rows = torch.stack([torch.cat([g[k].flatten() for k in columns]) for g in gradients])
            spread[estimator, kind] = rows.var(0).sum().item()
    for kind in ("weight", "rho"):
        assert spread["flipout", kind] < 0.5 * spread["shared", kind]


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("method", [MFVI, SDP])
def test_every_kind_of_input_trains_and_samples(kind, method):
    embedding, make = INPUTS[kind]
    inputs = make()
    for options, targets in (
        ({"outputs": 3}, torch.zeros(len(inputs), dtype=torch.long)),
        ({"outputs": 1, "likelihood": "laplace"}, torch.randn(len(inputs))),
    ):
        model = method.build(replace(CONFIG, embedding=embedding, **options))
        assert model.config.dropout == 0
        method.loss(model, Batch(inputs, targets), PROGRESS).total.backward()
        assert not [n for n, p in model.named_parameters() if p.grad is None]
        prediction = method.predictor(model).predict(inputs)
        assert (
            prediction.mutual_information if options["outputs"] == 3 else prediction.model_variance
        ).min() > 0
    assert not [m for m in model.modules() if type(m) is torch.nn.Linear]


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("method", [MFVI, SDP])
def test_samples_in_one_pass_equal_one_pass_each(kind, method):
    # every map draws once per pass, so a sample is one set of weights for all tokens and all rows
    embedding, make = INPUTS[kind]
    model, inputs = method.build(replace(CONFIG, embedding=embedding)).double().eval(), make()
    if kind == "graphs":
        inputs = replace(inputs, identifiers=inputs.identifiers.double())
    elif kind == "images":
        inputs = inputs.double()
    recording = noise.Recording()
    with noise.source(recording):
        model(inputs, samples=4)
    numbers = [draw.fresh() for draw in recording.draws]
    assert [n.shape for n in numbers] == [(4, *m.weight.shape) for m in used_in_order(model, inputs)]
    with noise.source(noise.Playback(numbers)):
        at_once = model(inputs, samples=4).f  # [S, B, C]
    for s in range(4):
        with noise.source(noise.Playback([n[s : s + 1] for n in numbers])):
            assert torch.allclose(model(inputs, samples=1).f[0], at_once[s], atol=1e-12)
    assert (at_once[0] - at_once[1]).abs().max() > 1e-4


def used_in_order(model, inputs):
    """The model's random maps in the order of their calls; each is called once."""
    called = []
    hooks = [m.register_forward_hook(lambda m, *_: called.append(m)) for m in bayesian_maps(model)]
    model(inputs)
    for hook in hooks:
        hook.remove()
    assert len(called) == len(bayesian_maps(model)) == len(set(called))
    return called


def test_training_learns_classes():
    method = replace(MFVI, kl=1e-3, anneal=0.5)
    optim = OptimConfig(epochs=30, batch_size=10, lr=1e-2, select_every=5)
    trainer = Trainer(
        method=method, config=CONFIG, optim=optim, train=blobs(30, 0), validation=blobs(30, 1), seed=3
    )
    model, test = trainer.fit(), blobs(60, 2)
    prediction = method.predictor(model).predict(test.inputs)
    assert (prediction.label == test.targets).float().mean() > 0.85
    assert torch.equal(prediction.probabilities, method.predictor(model).predict(test.inputs).probabilities)


def test_training_learns_numbers():
    config = replace(CONFIG, outputs=1, likelihood="laplace", depth=1)
    optim = OptimConfig(epochs=40, batch_size=10, lr=2e-2, select_every=5)
    data = {"train": brightness(40, 0), "validation": brightness(20, 1)}
    method = replace(MFVI, kl=1e-3)
    model, test = Trainer(method=method, config=config, optim=optim, **data).fit(), brightness(50, 2)
    prediction = method.predictor(model).predict(test.inputs)
    assert (prediction.mean - test.targets).abs().mean() < 0.3 * test.targets.abs().mean()
    assert (prediction.model_variance > 0).all()


def test_a_saved_model_comes_back_the_same(tmp_path):
    model = MFVI.build(CONFIG)
    again = Transformer.from_pretrained(model.save_pretrained(tmp_path / "model"))
    assert again.config == model.config
    x = images()
    assert torch.equal(model.predict(x).probabilities, again.predict(x).probabilities)


def test_means_can_start_from_a_point_model():
    point = Mle(attention=KernelAttentionConfig()).build(CONFIG)
    model = MFVI.build(CONFIG)
    assert all(name.endswith(".rho") for name in warm_start(model, point.state_dict()))
    assert torch.equal(model.head.weight, point.head.weight)


def test_the_weight_of_the_divergence_grows_when_asked_to():
    model, batch = MFVI.build(CONFIG), Batch(images(3), torch.tensor([0, 1, 2]))
    growing = replace(MFVI, kl=2.0, anneal=0.5)
    weights = [growing.loss(model, batch, Progress(at, 100)).weight_g for at in (0.0, 0.25, 0.5, 1.0)]
    assert weights == [0.0, 1.0, 2.0, 2.0]


def test_a_map_keeps_the_type_of_the_one_it_replaces():
    made = BayesianLinear.around(torch.nn.Linear(3, 2).double(), 1.0, 0.1)
    assert {p.dtype for p in made.parameters()} == {torch.float64}
    assert torch.allclose(made.std, torch.tensor(0.1, dtype=torch.float64))


def test_settings_out_of_range_are_reported_together():
    with pytest.raises(ConfigError, match=r"mfvi: kl=-1.*or '1/N'.*anneal=2"):
        Mfvi(kl=-1, anneal=2)
