"""`samples=0`: prediction by posterior means, with the variance of attention carried to the outputs."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import nn

from sgpa.attention.moments import FusedMoments, JointMoments, MarginalMoments
from sgpa.core.errors import InputError, NumericalError
from sgpa.gp.likelihoods import (
    POINTS,
    CategoricalLikelihood,
    LaplaceLikelihood,
    normal_quantiles,
    sobol_normal,
    square_root,
)
from sgpa.inference.answers import Trained
from sgpa.inference.readers import ImageReader, Rows
from sgpa.inference.trust import TrustRule
from sgpa.methods import Ensemble, McDropout, Mfvi, Sgpa, Sngp
from sgpa.methods.ensemble import EnsemblePredictor
from sgpa.models import DotProductConfig, MeanFieldConfig, SgpaConfig, Transformer
from sgpa.models.linearised import label_moments, output_moments
from support.small_models import ATTENTIONS, GRAPHS, INPUTS, PATCHES, TOKENS, graphs, images, small, texts
from support.terminal import sgpa

SAMPLED = ("orthogonal", "joint", "cheng-boots", "standard")


def build(attention="orthogonal", embedding=PATCHES, **options):
    torch.manual_seed(0)
    model = Transformer(small(embedding, ATTENTIONS[attention], **options)).eval()
    for layer in model.gp_layers:
        if hasattr(layer.attention, "v_g"):
            nn.init.normal_(layer.attention.v_g)
    return model


class Linear(nn.Module):
    """Replaces the MLP and the norm, so that the map from the last layer to the outputs is linear."""

    def forward(self, x):
        return x


def scale_noise(model, factor):
    """Outputs change with the noise of a depth-1 model through W_o: a small W_o is little noise."""
    for layer in model.gp_layers:
        layer.attention.W_o.weight.data.mul_(factor)


@pytest.mark.parametrize("attention", SAMPLED)
@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("pooling", ["mean", "sequence"])
def test_every_model_predicts_without_drawing(attention, kind, pooling):
    embedding, make = INPUTS[kind]
    model, inputs = build(attention, embedding, pooling=pooling), make()
    prediction = model.predict(inputs, samples=0)
    assert torch.allclose(prediction.probabilities.sum(-1), torch.ones(len(inputs)))
    assert (prediction.mutual_information > 0).all()
    assert (prediction.expected_entropy <= prediction.entropy + 1e-6).all()
    mean, covariance = model.moments(inputs)
    assert not mean.requires_grad
    assert not covariance.requires_grad
    assert torch.allclose(covariance, covariance.mT)
    assert torch.linalg.eigvalsh(covariance.double()).min() > -1e-5 * covariance.abs().max()
    assert torch.equal(model.predict(inputs, samples=0, seed=5).probabilities, prediction.probabilities)


@pytest.mark.parametrize("attention", SAMPLED)
@pytest.mark.parametrize("kind", ["images", "texts"])
def test_one_layer_with_a_linear_tail_has_exactly_the_moments_of_its_samples(attention, kind):
    embedding, make = INPUTS[kind]
    model, inputs = build(attention, embedding, depth=1), make()
    model.mlp, model.norm = Linear(), Linear()
    mean, covariance = model.moments(inputs)
    S = 20_000
    f = model.draw(inputs, samples=S).double()  # [S, B, C]
    deviation = covariance.diagonal(dim1=-2, dim2=-1).sqrt().double()
    assert ((f.mean(0) - mean).abs() < 5 * deviation / S**0.5).all()
    centred = f - mean
    empirical = torch.einsum("sbc,sbd->bcd", centred, centred) / S
    error = (covariance.square() + (deviation.square()[..., None] * deviation.square()[:, None])).sqrt()
    assert ((empirical - covariance).abs() < 5 * error / S**0.5).all()


@pytest.mark.parametrize("depth", [1, 3])
def test_with_little_noise_the_moments_are_those_of_the_samples(depth):
    model, x = build(depth=depth), images()
    scale_noise(model, 0.02)
    mean, covariance = model.moments(x)
    f = model.draw(x, samples=4000)
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    assert torch.allclose(f.var(0), variance, rtol=0.12)  # 5 times √(2 / 4000)
    assert ((f.mean(0) - mean).abs() < 6 * (variance / 4000).sqrt()).all()


def test_layers_limits_the_variance_to_the_last_layers():
    model, x = build(depth=3), images()
    states = model.global_state()
    parts = [output_moments(model, x, states, layers=n)[1] for n in (1, 2, 3)]
    variances = [p.diagonal(dim1=-2, dim2=-1) for p in parts]
    assert (variances[0] < variances[1]).all()
    assert (variances[1] < variances[2]).all()
    assert torch.equal(parts[2], output_moments(model, x, states)[1])


@pytest.mark.parametrize("attention", SAMPLED)
def test_without_variance_the_prediction_is_that_of_the_means(attention, monkeypatch):
    model, x = build(attention), images()
    mean, _ = model.moments(x)
    for kind in (MarginalMoments, JointMoments, FusedMoments):
        monkeypatch.setattr(kind, "draw", lambda moments, _: moments.mean)
    with torch.no_grad():
        assert torch.equal(model(x).f, mean)
    prediction = model.likelihood.predict_normal(mean, torch.zeros(len(x), 4, 4))
    assert torch.allclose(prediction.probabilities, mean.softmax(-1), atol=1e-7)
    assert torch.allclose(prediction.mutual_information, torch.zeros(len(x)), atol=1e-6)


@pytest.mark.parametrize("attention", SAMPLED)
def test_a_padded_text_is_predicted_as_the_text_alone(attention):
    model, ids = build(attention, TOKENS).double(), texts()
    together, alone = model.predict(ids, samples=0), model.predict(ids[1:2, :4], samples=0)
    assert torch.allclose(together.probabilities[1], alone.probabilities[0])
    assert torch.allclose(together.expected_entropy[1], alone.expected_entropy[0])


def test_a_row_is_predicted_the_same_in_any_batch():
    model, x = build(), images(5)
    whole, single = model.predict(x, samples=0), model.predict(x, samples=0, batch_size=1)
    assert torch.allclose(whole.probabilities, single.probabilities, atol=1e-6)


def test_regression_has_the_mean_and_the_variance_of_the_outputs():
    model, g = build("orthogonal", GRAPHS, outputs=1, likelihood="laplace"), graphs()
    model.likelihood.initialise(torch.tensor([3.0, 5.0, 10.0]))
    mean, covariance = model.moments(g)
    prediction, b = model.predict(g, samples=0), model.likelihood.spread
    assert prediction.samples.shape == (POINTS, 2)
    assert torch.allclose(prediction.mean, model.likelihood.mean(mean), atol=1e-5)
    assert torch.allclose(prediction.model_variance, b**2 * covariance[:, 0, 0], rtol=1e-3)
    assert torch.allclose(prediction.data_variance, 2 * model.likelihood.scale.square())


def test_predicting_leaves_modes_gradients_and_random_state_alone():
    model, x = build("cheng-boots"), images()
    model.train()
    asked = [p.requires_grad for p in model.parameters()]
    assert not all(asked)  # its v_g stays fixed
    before = torch.random.get_rng_state()
    model.predict(x, samples=0)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert [p.requires_grad for p in model.parameters()] == asked
    assert all(m.training for m in model.modules())
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(InputError):
        model.predict(torch.randn(2, 3, 8, 8), samples=0)
    assert [p.requires_grad for p in model.parameters()] == asked


@pytest.mark.parametrize("block", [torch.no_grad, torch.inference_mode, torch.enable_grad, nullcontext])
def test_predictions_are_equal_in_every_gradient_mode(block):
    model = build()
    expected = model.predict(torch.ones(2, 1, 8, 8), samples=0).probabilities
    with block():
        probabilities = model.predict(torch.ones(2, 1, 8, 8), samples=0).probabilities
    assert torch.equal(probabilities, expected)
    assert not probabilities.requires_grad


def test_autocast_changes_predictions_little():
    model, x = build(), images()
    expected = model.predict(x, samples=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        prediction = model.predict(x, samples=0)
    assert torch.allclose(prediction.probabilities.float(), expected.probabilities, atol=0.03)


def test_quadrature_points_have_the_moments_of_a_normal_distribution():
    points = sobol_normal(5)
    assert points.shape == (POINTS, 5)
    assert torch.equal(points, sobol_normal(5))
    assert points.isfinite().all()
    assert torch.allclose(points.mean(0), torch.zeros(5, dtype=torch.float64))
    assert torch.allclose(points.T @ points / POINTS, torch.eye(5, dtype=torch.float64), atol=0.15)
    quantiles = normal_quantiles()
    assert quantiles.mean().abs() < 1e-12
    assert quantiles.var(correction=0) == pytest.approx(1)
    B = torch.randn(3, 4, 2, dtype=torch.float64)
    root = square_root(B @ B.mT)  # of rank 2
    assert torch.allclose(root @ root, B @ B.mT, atol=1e-9)


def test_quadrature_is_near_the_average_over_many_draws():
    torch.manual_seed(0)
    mean, B = 2 * torch.randn(6, 4), torch.randn(6, 4, 4)
    prediction = CategoricalLikelihood().predict_normal(mean, B @ B.mT)
    draws = mean + torch.einsum("bcd,sbd->sbc", B, torch.randn(40_000, 6, 4))
    expected = CategoricalLikelihood().predict(draws)
    assert torch.allclose(prediction.probabilities, expected.probabilities, atol=0.02)
    assert torch.allclose(prediction.expected_entropy, expected.expected_entropy, atol=0.03)
    value = LaplaceLikelihood().predict_normal(mean[:, :1], (B @ B.mT)[:, :1, :1])
    assert torch.allclose(value.model_variance, (B @ B.mT)[:, 0, 0], rtol=1e-4)


@pytest.mark.parametrize("attention", [DotProductConfig(), ATTENTIONS["kernel"]])
def test_models_that_sample_nothing_predict_the_same_without_samples(attention):
    model = Transformer(small(attention=attention))
    x = images()
    expected = model.predict(x).probabilities
    assert torch.equal(model.predict(x, samples=0).probabilities, expected)
    assert torch.equal(model.with_samples(0).predict(x).probabilities, expected)
    with pytest.raises(InputError, match="samples=3: nothing is sampled by this model"):
        model.with_samples(3)
    with pytest.raises(InputError, match="samples=0: nothing is sampled by this model"):
        model.eval().moments(x)


def test_models_without_a_closed_form_are_refused():
    random = Mfvi().build(small())
    with pytest.raises(InputError, match="samples=0: its weights are random"):
        random.predict(images(), samples=0)
    both = Transformer(small(weights=MeanFieldConfig()))
    with pytest.raises(InputError, match="samples=0: its weights are random"):
        both.predict(images(), samples=0)
    with pytest.raises(InputError, match="samples=0: dropout is on"):
        Transformer(small()).train().moments(images())
    with pytest.raises(InputError, match=r"samples=0 \(allowed: 1 to 1000000\)"):
        build()(images(), samples=0)
    assert random.with_samples(3).predict(images()).probabilities.shape == (3, 4)


@pytest.mark.parametrize(
    ("inputs", "complaint"),
    [
        (torch.zeros(0, 1, 8, 8), "no row"),
        (torch.zeros(2, 3, 8, 8), "image"),
        (torch.zeros(2, 1, 4, 4), "image"),
        (torch.zeros(2, 64), "image"),
        (torch.full((2, 1, 8, 8), float("nan")), "NaN"),
    ],
)
def test_bad_images_are_refused_as_with_samples(inputs, complaint):
    with pytest.raises((InputError, NumericalError), match=complaint) as drawn:
        build().predict(inputs)
    with pytest.raises(type(drawn.value), match=complaint) as linearised:
        build().predict(inputs, samples=0)
    assert str(linearised.value) == str(drawn.value)


@pytest.mark.parametrize(
    "inputs", [torch.full((2, 3), 11), torch.full((2, 3), -1), torch.zeros(2, 3, dtype=torch.long)]
)
def test_bad_texts_are_refused_as_with_samples(inputs):
    with pytest.raises(InputError) as drawn:
        build("orthogonal", TOKENS).predict(inputs)
    with pytest.raises(InputError) as linearised:
        build("orthogonal", TOKENS).predict(inputs, samples=0)
    assert str(linearised.value) == str(drawn.value)


def test_predictors_accept_another_number_of_samples():
    method, x = Sgpa(attention=SgpaConfig(num_global=3)), images()
    models = [method.build(small()) for _ in range(2)]
    ensemble = Ensemble(base=method, size=2, id="sgpae")
    predictor = ensemble.combine([ensemble.predictor(model) for model in models])
    linearised = predictor.with_samples(0)
    assert isinstance(linearised, EnsemblePredictor)
    alone = torch.stack([model.predict(x, samples=0).probabilities for model in models])
    assert torch.allclose(linearised.predict(x).probabilities, alone.mean(0))
    again = models[0].with_samples(0).with_samples(4)
    assert torch.equal(again.predict(x).probabilities, models[0].predict(x, samples=4).probabilities)
    values = replace(small(), outputs=1, likelihood="laplace")
    members = [method.build(values).with_samples(0) for _ in range(2)]
    assert EnsemblePredictor(tuple(members)).predict(x).samples.shape == (2 * POINTS, 3)


def test_predictors_without_a_number_of_samples_are_refused():
    dropping = McDropout().predictor(Transformer(small(attention=DotProductConfig())))
    assert dropping.with_samples(3).samples == 3
    with pytest.raises(InputError, match="DropoutPredictor does not offer that choice"):
        dropping.with_samples(0)
    sngp = Sngp()
    with pytest.raises(InputError, match="SngpPredictor does not offer that choice"):
        sngp.predictor(sngp.build(small())).with_samples(5)
    with pytest.raises(InputError, match=r"samples=-2 \(allowed: 1 to 1000000, or 0"):
        build().with_samples(-2)


def test_a_saved_predictor_predicts_without_drawing():
    rows = Rows(images(), [{"file": str(i)} for i in range(3)])
    trained = Trained(build(), ImageReader(size=8, grey=True), TrustRule(1.0)).with_samples(0)
    assert trained.rule == TrustRule(1.0)
    expected = trained.predictor.model.predict(rows.inputs, samples=0)
    answers = trained.answers(rows)
    assert [answer["entropy"] for answer in answers] == pytest.approx(expected.entropy.tolist())


@pytest.mark.slow
def test_the_command_line_predicts_without_drawing(tmp_path):
    from sgpa.experiments.recipes import plan
    from sgpa.experiments.runner import RunFolder, calibrate, train_stage

    tiny = ["model.depth=1", "model.width=16", "model.heads=2", "sgpa.attention.num_global=2"]
    epochs = [f"{part}.epochs=1" for part in ("optim", "stage1", "stage2")]
    run_folder = RunFolder.of("digits", tmp_path / "runs", [*tiny, *epochs])
    run_folder.claim()
    from PIL import Image

    Image.new("L", (8, 8), 100).save(tmp_path / "grey.png")
    cells = {}
    for name in ("sgpa", "mle"):
        method_plan = plan(run_folder.recipe, name)
        for step in range(len(method_plan.stages)):
            train_stage(run_folder, method_plan, step, 0)
        calibrate(run_folder, method_plan, 0)
        cells[name] = run_folder.cell(method_plan, 0)
    given = (tmp_path / "grey.png", "--json")
    outcomes = [sgpa("predict", cells["sgpa"], *given, "--samples", n) for n in ("0", "0", "20")]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0], outcomes[0].err
    assert outcomes[0].out == outcomes[1].out != outcomes[2].out
    plain = [sgpa("predict", cells["mle"], *given, *more).out for more in ((), ("--samples", "0"))]
    assert plain[0] == plain[1]
    complaint = sgpa("predict", cells["mle"], *given, "--samples", "3").complaint
    assert "nothing is sampled by this model" in complaint
    assert "leave --samples out" in complaint
    assert (
        "samples=-1 (allowed: 1 to 1000000, or 0"
        in sgpa("predict", cells["sgpa"], *given, "--samples", "-1").complaint
    )


@pytest.mark.parametrize("attention", SAMPLED)
def test_one_derivative_has_the_variance_of_the_label_against_the_others(attention):
    model, x = build(attention), images()
    states = model.global_state()
    mean, exact = output_moments(model, x, states)
    f, covariance = label_moments(model, x, states)
    torch.testing.assert_close(f, mean)
    p = f.softmax(-1)
    top = torch.nn.functional.one_hot(f.argmax(-1), f.shape[-1]).to(f)
    others = p * (1 - top)
    d = top - others / others.sum(-1, keepdim=True)
    expected = torch.einsum("bc,bcd,bd->b", d, exact, d)
    empirical = torch.einsum("bc,bcd,bd->b", d, covariance, d)
    torch.testing.assert_close(empirical, expected, rtol=1e-3, atol=1e-7)


def test_one_output_needs_no_choice_of_a_direction():
    model, g = build(embedding=GRAPHS, likelihood="laplace", outputs=1), graphs()
    states = model.global_state()
    for ours, exact in zip(label_moments(model, g, states), output_moments(model, g, states), strict=True):
        torch.testing.assert_close(ours, exact)
