"""Novelty: a percentile among held-out rows, high where any view is unfamiliar."""

import pytest
import torch

from sgpa.core.errors import InputError
from sgpa.posthoc.novelty import TransformerNovelty
from sgpa.posthoc.passes import Pass
from sgpa.posthoc.views import Views
from support.tiny_transformers import attached, batch, make, vit

E, LAYERS, TOKENS = 4, 3, 6


def seen(count, seed, *, states=0.0, energy=0.0):
    """A made pass of three layers, moved by so many standard deviations."""
    generator = torch.Generator().manual_seed(seed)
    x = {i: torch.randn(count, TOKENS, E, generator=generator) + states for i in range(LAYERS)}
    logits = torch.randn(count, 3, generator=generator) - energy
    return Pass(states=x, head=x[2].mean(1), logits=logits)


def views():
    train = seen(300, 0)
    tokens = [x.flatten(0, 1) for x in train.states.values()]
    rows = [train.rows(x) for x in train.states.values()]
    return Views.fit(tokens, rows, points=32, classes=True, device=torch.device("cpu"))


def columns(own, made):
    return own.columns(made, made.head.square().sum(-1))


def fitted(*unfamiliar):
    own = views()
    kinds = [columns(own, kind) for kind in unfamiliar]
    return TransformerNovelty.fit(own, columns(own, seen(500, 1)), kinds)


def novelty_of(novelty, made):
    return novelty(columns(novelty.views, made))


def test_columns_leave_the_first_layer_out():
    names = ("energy", "entropy", "tokens.1", "tokens.2", "rows.1", "rows.2", "head")
    assert views().names == names


def test_familiar_rows_have_uniform_percentiles():
    novelty = novelty_of(fitted(), seen(1000, 7))
    assert abs(float(novelty.mean()) - 0.5) < 0.05
    assert abs(float((novelty > 0.9).double().mean()) - 0.1) < 0.04


@pytest.mark.parametrize("view", ["states", "energy"])
def test_without_unfamiliar_rows_every_view_counts(view):
    assert float(novelty_of(fitted(), seen(200, 8, **{view: 6.0})).mean()) > 0.9


def test_unfamiliar_rows_choose_the_views_and_others_are_dropped():
    by_output = fitted(seen(200, 5, energy=4.0))
    assert "energy" in by_output.views.names
    assert not any(name.startswith("tokens") for name in by_output.views.names)
    by_states = fitted(seen(200, 5, states=4.0))
    assert "energy" not in by_states.views.names
    assert float(novelty_of(by_states, seen(200, 8, states=4.0)).mean()) > 0.95
    assert by_states.views.gps.keys() == {name for name in by_states.views.names if "." in name}


def test_one_layer_and_no_classes():
    made = seen(300, 0)
    own = Views.fit([made.states[0].flatten(0, 1)], [], points=16, classes=False, device=torch.device("cpu"))
    assert own.names == ("tokens.0", "head")


def test_round_trip():
    novelty, new = fitted(), seen(50, 9)
    again = TransformerNovelty.from_tensors(novelty.tensors(), novelty.views.names, LAYERS, "adapter")
    torch.testing.assert_close(novelty_of(again, new), novelty_of(novelty, new))


def test_too_few_rows_and_values_that_are_not_finite_are_refused():
    own = views()
    with pytest.raises(InputError, match="novelty: 5 held-out rows; at least 10 are needed"):
        TransformerNovelty.fit(own, columns(own, seen(5, 1)))
    wrong = columns(own, seen(50, 1))
    wrong[3, 2] = float("inf")
    with pytest.raises(InputError, match=r"novelty: the model's tokens.1 is not finite"):
        TransformerNovelty.fit(own, wrong)


def test_noise_is_more_novel_than_test_images():
    model = make(vit)
    gp = attached(model)
    familiar = batch(model, 60, seed=50, labels=False)
    strange = {"pixel_values": 4 * familiar["pixel_values"]}
    assert gp.predict(strange).novelty.mean() > 0.7
    assert abs(float(gp.predict(familiar).novelty.mean()) - 0.5) < 0.15
