"""Short sequences: a sentence says less than the page that the model was trained on."""

from dataclasses import replace

import pytest
import torch

import sgpa
from sgpa.core.errors import ConfigError
from sgpa.core.types import Classification
from sgpa.inference.judged import make_judge
from sgpa.inference.shortened import shortened
from sgpa.inference.trust import TrustRule, tempered

CONFIG = sgpa.ModelConfig(
    embedding=sgpa.TokenConfig(vocabulary=40, max_tokens=60), depth=1, heads=2, width=16, outputs=2
)


def pages(n, seed=0):
    """Sixty words; those of the other class are a third of the words."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    other = torch.rand(n, 60, generator=generator) < 0.35
    words = torch.randint(1, 20, (n, 60), generator=generator)
    return words + 20 * (y.unsqueeze(1) ^ other).long() - (words == 19).long(), y


def nll(answer, y):
    return float(-answer.probabilities[torch.arange(len(y)), y].clamp_min(1e-30).log().mean())


@pytest.fixture(scope="module")
def model():
    x, y = pages(300)
    return sgpa.fit(x, y, CONFIG, method="mle", epochs=12, batch_size=25, lr=5e-3, on_progress=lambda _: None)


def test_parts_of_held_out_rows_make_short_ones_less_sure(model):
    assert (model.rule.short_length, model.rule.short_exponent > 0.1) == (60, True)
    x, y = pages(400, seed=1)
    sure = replace(model, rule=replace(model.rule, short_exponent=0.0, short_scores=(), short_wrong=()))
    few = x.clone()
    few[:, 4:] = 0
    assert nll(model.predict(few), y) < nll(sure.predict(few), y)
    assert model.predict(few).trust.float().mean() < sure.predict(few).trust.float().mean()
    assert torch.equal(model.predict(few).label, sure.predict(few).label)
    assert torch.equal(model.predict(x).probabilities, sure.predict(x).probabilities)


def test_the_temperature_is_saved(model, tmp_path):
    x, _ = pages(20, seed=2)
    x[:, 7:] = 0
    loaded = sgpa.load(model.save_pretrained(tmp_path))
    assert torch.equal(loaded.predict(x).probabilities, model.predict(x).probabilities)
    assert loaded.rule == model.rule


def test_short_rows_have_a_limit_of_their_own():
    wrong = tuple(i >= 50 for i in range(100))  # every second answer, the less sure ones
    scores = tuple(0.006 * i for i in range(100))
    rule = TrustRule(0.69, max_error=0.1, short_length=9.0, short_scores=scores, short_wrong=wrong)
    uncertainty, lengths = torch.tensor([0.1, 0.5, 0.5, 0.1]), torch.tensor([3, 3, 12, 12])
    assert rule.reasons(uncertainty, None, lengths) == ["", "unsure", "", ""]
    assert rule.reasons(uncertainty, None) == ["", "", "", ""]
    strict = replace(rule, max_uncertainty=0.05)
    assert strict.reasons(uncertainty, None, lengths) == ["unsure"] * 4


def test_images_and_few_parts_have_no_temperature():
    rule = TrustRule(0.5)
    p = torch.tensor([[0.9, 0.1]]).repeat(5, 1)
    assert rule.with_short_rows(p, torch.zeros(5).long(), torch.ones(5), 9.0) is rule
    answer = Classification(p, torch.zeros(5))
    assert rule.calibrated(answer, torch.ones(5)) is answer
    assert rule.calibrated(answer) is answer


def test_a_temperature_softens_the_rows_that_have_one():
    p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [1.0, 0.0]])
    answer = Classification(p, torch.tensor([0.2, 0.2, 0.0]))
    softer = tempered(answer, torch.tensor([1.0, 2.0, 4.0]))
    assert softer.probabilities[0].tolist() == p[0].tolist()
    torch.testing.assert_close(softer.probabilities[1], torch.tensor([0.75, 0.25]))
    assert 0.99 < softer.probabilities[2, 0] <= 1
    torch.testing.assert_close(softer.mutual_information[:2], answer.mutual_information[:2])
    assert tempered(answer, torch.ones(3)) is answer


def test_temperatures_out_of_range_are_refused():
    for values in ({"short_exponent": 3.0}, {"short_length": float("inf")}, {"short_exponent": -1.0}):
        with pytest.raises(ConfigError, match="short_"):
            TrustRule(0.5, **values)


def test_half_of_the_parts_begin_at_the_start():
    x = torch.arange(1, 61).repeat(400, 1)
    share = (shortened(x)[:, 0] == 1).float().mean()
    assert 0.5 <= share < 0.65


def test_the_judge_of_a_test_set_trusts_what_predict_trusts(model):
    x, _ = pages(120, seed=3)
    x[:60, 6:] = 0
    trusted, novelty = make_judge(model.rule, model.novelty)(x, model.predictor.predict(x))
    answer = model.predict(x)
    assert trusted.tolist() == answer.trust.tolist()
    assert novelty.tolist() == answer.novelty.tolist()
    assert 0 < trusted.sum() < 120
