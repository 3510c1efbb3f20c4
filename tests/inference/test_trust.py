"""Trust: the limits keep what they promise, and every answer that is not trusted has a reason."""

import math

import numpy as np
import pytest
import torch

from sgpa.core.errors import ConfigError, InputError
from sgpa.core.types import Classification, Regression
from sgpa.inference.entropy_limit import default_max_error
from sgpa.inference.trust import TrustRule, choose


def answers(n, seed=0):
    """Answers of two classes that are right with their probability, targets, and that probability."""
    generator = torch.Generator().manual_seed(seed)
    p = 0.5 + 0.5 * torch.rand(n, generator=generator, dtype=torch.double)
    right = torch.rand(n, generator=generator) < p
    return Classification(torch.stack([p, 1 - p], -1), torch.zeros(n)), (~right).long(), p


def true_error(limit):
    """Share of wrong answers among those whose entropy is at most `limit`, in the population of `answers`."""
    p = torch.linspace(0.5, 1.0, 100_001, dtype=torch.double)
    trusted = torch.special.entr(torch.stack([p, 1 - p])).sum(0) <= limit
    return float((1 - p)[trusted].mean()) if trusted.any() else 0.0


def test_trusted_answers_are_wrong_at_most_as_often_as_promised():
    rules = [choose(*answers(400, seed)[:2], max_error=0.15) for seed in range(200)]
    promised = [rule for rule in rules if rule.guaranteed]
    assert len(promised) > 150
    assert sum(true_error(rule.max_uncertainty) > 0.15 for rule in promised) <= 0.1 * 200


def test_more_rows_allow_a_higher_limit():
    limits = [choose(*answers(n)[:2], max_error=0.15).max_uncertainty for n in (200, 2000, 50_000)]
    assert limits == sorted(limits)
    assert true_error(limits[-1]) == pytest.approx(0.15, abs=0.02)


def test_too_few_rows_give_an_estimate_and_say_so():
    prediction, targets, _ = answers(12)
    rule = choose(prediction, targets, max_error=0.1)
    assert not rule.guaranteed
    assert rule.rows == 12


def test_a_model_that_is_always_wrong_is_never_trusted():
    prediction = answers(100)[0]
    rule = choose(prediction, torch.ones(100).long())
    assert rule.max_uncertainty == -math.inf
    assert rule.reasons(prediction.score, None) == ["unsure"] * 100


def test_a_few_confident_and_right_rows_do_not_make_confident_answers_unsure():
    p = torch.tensor([[0.999, 0.001], [0.9999, 0.0001], [0.9995, 0.0005]])
    rule = choose(Classification(p, torch.zeros(3)), torch.zeros(3).long())
    new = torch.tensor([[0.99, 0.01], [0.6, 0.4]])
    assert rule.reasons(Classification(new, torch.zeros(2)).score, None) == ["", "unsure"]


def test_each_reason_is_named():
    rule = TrustRule(max_uncertainty=0.5, max_novelty=0.9)
    entropy, novelty = torch.tensor([0.1, 0.6, 0.1, 0.6]), torch.tensor([0.1, 0.1, 0.95, 0.95])
    assert rule.reasons(entropy, novelty) == ["", "unsure", "unfamiliar", "unsure, unfamiliar"]
    assert rule.reasons(entropy, None) == ["", "unsure", "", "unsure"]


def test_unfamiliar_rows_do_not_count_against_the_limit():
    prediction, targets, _ = answers(2000)
    novelty = torch.linspace(0, 1, 2000)
    spoiled = torch.where(novelty > 0.95, torch.ones(2000).long(), targets)  # all wrong where unfamiliar
    rule = choose(prediction, spoiled, novelty, max_error=0.15)
    without = choose(prediction, spoiled, None, max_error=0.15)
    assert rule.max_uncertainty > without.max_uncertainty
    assert rule.max_novelty == 0.95


def test_numbers_are_limited_by_their_variance():
    samples = torch.randn(10, 1000, generator=torch.Generator().manual_seed(0)) * torch.linspace(0, 1, 1000)
    prediction = Regression(samples, torch.tensor(0.1))
    rule = choose(prediction, torch.zeros(1000))
    trusted = np.array([reason == "" for reason in rule.reasons(prediction.score, None)])
    assert trusted.mean() == pytest.approx(0.95, abs=0.002)
    assert rule.max_error is None


@pytest.mark.parametrize("bad", [{"max_error": 0.0}, {"max_error": 1.0}, {"max_novelty": 1.5}])
def test_limits_out_of_range_are_refused(bad):
    with pytest.raises(ConfigError, match=f"trust: {next(iter(bad))}="):
        choose(*answers(50)[:2], **bad)


def test_the_default_is_half_of_the_models_own_error_at_most_a_tenth():
    wrong = np.zeros(5000, bool)
    wrong[:250] = True
    assert default_max_error(wrong) == pytest.approx(0.025, abs=5e-4)
    assert default_max_error(np.ones(100, bool)) == 0.1
    assert default_max_error(np.zeros(10, bool)) == 0.1  # ten rows cannot show less
    assert 0.02 < default_max_error(np.zeros(300, bool)) < 0.04


def test_an_accurate_model_does_not_trust_all_of_its_answers():
    """With 10 % for every model, one that is wrong in 5 % would trust everything."""
    generator = torch.Generator().manual_seed(0)
    p = 1 - 0.5 * torch.rand(4000, generator=generator, dtype=torch.double) ** 9  # wrong in 5 %
    wrong = torch.rand(4000, generator=generator) > p
    prediction = Classification(torch.stack([p, 1 - p], -1), torch.zeros(4000))
    rule, old = choose(prediction, wrong.long()), choose(prediction, wrong.long(), max_error=0.1)
    refused, refused_before = (
        torch.tensor([bool(reason) for reason in r.reasons(prediction.score, None)]) for r in (rule, old)
    )
    assert rule.guaranteed
    assert float(refused_before[wrong].double().mean()) == 0
    assert float(refused[wrong].double().mean()) > 0.4
    assert float(refused[~wrong].double().mean()) < 0.2


def test_few_rows_of_a_bad_model_still_trust_its_surest_answers():
    p = torch.linspace(0.5, 1, 40, dtype=torch.double)
    wrong = p < 0.75  # half of the answers, the least sure ones
    prediction = Classification(torch.stack([p, 1 - p], -1), torch.zeros(40))
    rule = choose(prediction, wrong.long(), max_error=0.1)
    assert not rule.guaranteed
    assert "40 held-out rows cannot show that at most 10.0% of the trusted answers are wrong" in rule.doubt
    assert [not reason for reason in rule.reasons(prediction.score, None)][-20:] == [True] * 20
    assert rule.reasons(prediction.score, None)[0] == "unsure"


def test_too_few_rows_for_novelty_are_named():
    assert TrustRule(0.3, rows=8).unmeasured == (
        "No input is called unfamiliar: 8 held-out rows are too few to measure novelty."
    )
    assert TrustRule(0.3, rows=10).unmeasured == ""
    assert TrustRule(0.3).unmeasured == ""


def test_a_rule_is_chosen_again_for_another_error():
    prediction, targets, _ = answers(900)
    rule = choose(prediction, targets, max_error=0.2)
    again = TrustRule.from_json({"trust": rule.to_json(), "threshold": 0}).with_max_error(0.1)
    direct = choose(prediction, targets, max_error=0.1)
    assert again.max_uncertainty == pytest.approx(direct.max_uncertainty, abs=1e-5)
    assert (again.max_error, again.guaranteed) == (0.1, direct.guaranteed)
    with pytest.raises(InputError, match="keeps no scores of held-out rows"):
        TrustRule(0.3).with_max_error(0.1)
    with pytest.raises(ConfigError, match="max_error=2"):
        rule.with_max_error(2)


def test_the_error_of_numbers_is_the_reach_of_the_interval():
    generator = torch.Generator().manual_seed(0)
    spread = torch.linspace(0.1, 2, 400)
    prediction = Regression(torch.stack([spread, -spread]), torch.tensor(0.05))  # deviation about `spread`
    targets = prediction.variance.sqrt() * torch.randn(400, generator=generator)
    rule = choose(prediction, targets, max_error=1.0)
    trusted = np.array([not reason for reason in rule.reasons(prediction.score, None)])
    low, high = rule.calibrated(prediction).interval(0.9)
    reach = ((high - low) / 2).numpy()
    assert (reach[trusted] <= 1.0 + 1e-4).all()
    assert (reach[~trusted] >= 1.0 - 1e-4).all()
    assert 0 < trusted.mean() < 1
    assert rule.doubt == ""


def test_given_residuals_replace_those_of_the_prediction():
    prediction = Regression(torch.zeros(1, 3), torch.tensor(0.5))
    rule = choose(prediction, torch.zeros(3), residuals=torch.tensor([2.0, 1.0, 3.0]))
    assert rule.residuals == (1.0, 2.0, 3.0)
    assert choose(prediction, torch.zeros(3)).residuals == (0.0, 0.0, 0.0)


def test_limits_beyond_64_bits_are_numbers():
    score = torch.tensor([0.1])
    assert TrustRule(10**30).reasons(score, score.double()) == [""]
    assert TrustRule(-(10**30)).reasons(score, None) == ["unsure"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_novelty": 10**30},
        {"max_novelty": 0.0},
        {"max_error": -0.1},
        {"bound": 2.0},
        {"rows": -1},
        {"residuals": (2.0, 1.0)},
        {"residuals": (-1.0, 1.0)},
        {"scores": (0.1, 0.2), "wrong": (True,)},
        {"scores": (-1.0,), "wrong": (True,)},
    ],
)
def test_a_rule_that_no_rows_gave_is_refused(wrong):
    with pytest.raises(ConfigError, match=f"trust: .*({'|'.join(wrong)})="):
        TrustRule(0.3, **wrong)


def unsure_answers(p, wrong=()):
    """Answers of two classes with these probabilities, and targets: all right but for some rows."""
    p = torch.tensor(p, dtype=torch.double)
    targets = torch.zeros(len(p), dtype=torch.long)
    targets[list(wrong)] = 1
    return Classification(torch.stack([p, 1 - p], -1), torch.zeros(len(p))), targets


def test_unsure_answers_that_are_right_by_chance_are_not_trusted():
    """Of 22 held-out rows of a model that has learned nothing the seven surest are right now and then."""
    p = [0.66, 0.65, 0.64, 0.62, 0.61, 0.6, 0.59, *[0.55] * 15]
    rule = choose(*unsure_answers(p, wrong=range(7, 22, 2)), max_error=0.1)
    assert rule.max_uncertainty == -math.inf
    assert rule.doubt == (
        "No answer is trusted: 22 held-out rows show no limit on entropy with at most 10.0% wrong answers "
        "below it."
    )
    again = TrustRule.from_json({"trust": rule.to_json(), "threshold": 0}).with_max_error(0.25)
    assert again.max_uncertainty == pytest.approx(
        choose(*unsure_answers(p, range(7, 22, 2)), max_error=0.25).max_uncertainty
    )
    assert again.max_uncertainty > 0


def test_answers_that_are_somewhat_less_sure_than_right_are_trusted():
    p = [0.97, 0.95, 0.9, 0.88, 0.85, 0.84, 0.83, 0.82, 0.6, 0.55, 0.55, 0.52]
    prediction, targets = unsure_answers(p, wrong=(9, 11))
    rule = choose(prediction, targets, max_error=0.1)
    assert [not reason for reason in rule.reasons(prediction.score, None)] == [True] * 9 + [False] * 3


def test_a_rule_that_keeps_no_probabilities_is_chosen_again_without_them():
    rule = choose(*answers(60)[:2], max_error=0.1)
    saved = rule.to_json()
    del saved["probabilities"]
    older = TrustRule.from_json({"trust": saved, "threshold": 0})
    assert older.probabilities == ()
    assert older.with_max_error(0.3).max_uncertainty >= rule.with_max_error(0.3).max_uncertainty > 0
    with pytest.raises(ConfigError, match="trust: probabilities="):
        TrustRule(0.3, scores=(0.1, 0.2), wrong=(True, False), probabilities=(0.9,))


def test_intervals_of_few_held_out_rows_are_called_estimates():
    residuals = tuple(float(i) for i in range(26))
    assert TrustRule(0.3, rows=26, residuals=residuals).doubt == (
        "The intervals are estimates: with 26 held-out rows, those of 90% may cover as few as 78% of new "
        "values."
    )
    assert TrustRule(0.3, rows=100, residuals=residuals).doubt == ""
