import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Categorical, Laplace

from sgpa.core.errors import ConfigError, InputError
from sgpa.core.types import Kl, ModelOutput
from sgpa.gp.likelihoods import CategoricalLikelihood, LaplaceLikelihood
from sgpa.gp.objective import KlWeights, Progress, negative_elbo
from sgpa.models import ModelConfig, PatchConfig, SgpaConfig, Transformer


def test_categorical_likelihood_equals_torchs():
    f, y = torch.randn(5, 7, 4), torch.randint(0, 4, (7,))
    expected = -Categorical(logits=f).log_prob(y)  # [S, B]
    likelihood = CategoricalLikelihood()
    assert torch.allclose(likelihood.nll(f, y), expected.mean(0), atol=1e-6)
    assert torch.allclose(likelihood.nll(f[0], y), expected[0], atol=1e-6)
    prediction = likelihood.predict(f)
    assert torch.allclose(
        prediction.probabilities, f.softmax(-1).mean(0)
    )  # probabilities are averaged, not logits
    assert torch.allclose(prediction.expected_entropy, Categorical(logits=f).entropy().mean(0), atol=1e-6)
    assert torch.allclose(prediction.entropy, Categorical(probs=f.softmax(-1).mean(0)).entropy(), atol=1e-6)


def test_laplace_likelihood_equals_torchs_and_learns_its_scale():
    likelihood = LaplaceLikelihood()
    with torch.no_grad():
        likelihood.log_b.fill_(-0.7)
    b = likelihood.log_b.exp().detach()
    f, y = torch.randn(5, 7, 1), torch.randn(7)
    expected = -Laplace(f.squeeze(-1), b).log_prob(y)
    assert torch.allclose(likelihood.nll(f, y), expected.mean(0), atol=1e-6)
    prediction = likelihood.predict(f)
    assert torch.allclose(prediction.mean, f.mean((0, -1)))
    draws = prediction.samples.repeat(1, 4000)[..., :28000] + Laplace(0.0, b).sample((5, 28000))
    per_row = draws.unflatten(1, (4000, 7)).transpose(0, 1).flatten(0, 1)  # [S * 4000, B]
    assert torch.allclose(per_row.var(0), prediction.variance, rtol=0.15)
    likelihood.nll(f, y).mean().backward()
    assert likelihood.log_b.grad.abs() > 0


@pytest.mark.parametrize(
    ("likelihood", "targets", "outputs", "message"),
    [
        (CategoricalLikelihood(), torch.tensor([0, 5]), 4, "row 1: label 5 is outside 0..3"),
        (CategoricalLikelihood(), torch.tensor([-1, 0]), 4, "row 0: label -1"),
        (CategoricalLikelihood(), torch.tensor([0.5]), 4, "must be integers"),
        (LaplaceLikelihood(), torch.tensor([1.0, float("nan")]), 1, "row 1: the target is not a finite"),
        (LaplaceLikelihood(), torch.tensor([1.0]), 2, "needs a model with 1 output"),
    ],
)
def test_bad_targets_are_refused(likelihood, targets, outputs, message):
    with pytest.raises(InputError, match=message):
        likelihood.check(targets, outputs)


def test_the_elbo_is_the_sum_of_its_parts():
    kl = (Kl(torch.tensor(3.0), torch.tensor([1.0, 3.0])), Kl(torch.tensor(5.0), torch.tensor([0.0, 2.0])))
    output = ModelOutput(torch.zeros(2, 4), kl)
    loss = negative_elbo(output, CategoricalLikelihood(), torch.tensor([0, 1]), (0.5, 0.1))
    assert torch.allclose(loss.nll, torch.tensor(4.0).log())
    assert loss.kl_g == 8.0  # summed over layers
    assert loss.kl_a == 3.0  # and averaged over sequences
    assert torch.allclose(loss.total, torch.tensor(4.0).log() + 0.5 * 8 + 0.1 * 3)


def test_the_model_elbo_uses_the_kl_of_every_layer():
    config = ModelConfig(
        embedding=PatchConfig(image_size=8, channels=1),
        attention=SgpaConfig(num_global=3),
        depth=3,
        heads=2,
        width=8,
    )
    model = Transformer(config)
    x, y = torch.randn(4, 1, 8, 8), torch.randint(0, 10, (4,))
    torch.manual_seed(0)
    loss = negative_elbo(model(x), model.likelihood, y, (1.0, 1.0))
    torch.manual_seed(0)
    parts = [out.kl for _, _, _, out in model.run_layers(x)]
    assert torch.allclose(loss.kl_g, sum(kl.g for kl in parts))
    assert torch.allclose(loss.kl_a, sum(kl.a for kl in parts).mean())


@given(st.floats(0, 1), st.integers(1, 10**6))
def test_kl_weights_grow_linearly_and_then_stay(fraction, size):
    g, a = KlWeights(g="1/N", a=0.25, anneal=0.5).at(Progress(fraction, size))
    ramp = min(1.0, 2 * fraction)
    assert g == pytest.approx(ramp / size)
    assert a == pytest.approx(ramp * 0.25)
    assert KlWeights(g=1.0, a=1.0, anneal=0.0).at(Progress(fraction, size)) == (1.0, 1.0)


def test_bad_weights_are_reported_together():
    with pytest.raises(ConfigError, match=r"g=-2.*a=-1.*anneal=2"):
        KlWeights(g=-2, a=-1, anneal=2)
    with pytest.raises(ConfigError, match=r"g='N' \(allowed: a number or 1/N\)"):
        KlWeights(g="N")
