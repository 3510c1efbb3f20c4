"""Novelty: a percentile among held-out rows, high where any of the three views is unfamiliar."""

import pytest
import torch

from sgpa.core.errors import InputError
from sgpa.posthoc.novelty import Evidence, TransformerNovelty
from support.tiny_transformers import attached, batch, make, vit


def rows(count, seed, *, shares=0.0, states=0.0, head=0.0, energy=0.0):
    """Random evidence, moved by so many standard deviations."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    return Evidence(
        0.3 + 0.05 * (normal(count, 3) + shares),
        normal(count, 2, 6) + states,
        normal(count, 6) + head,
        normal(count) - energy,
    )


def fitted(seed=0):
    train = rows(500, seed)
    labels = torch.arange(500) % 3
    return TransformerNovelty.fit(train.states, train.head, labels, held_out=rows(500, seed + 1))


def test_familiar_rows_have_uniform_percentiles():
    novelty = fitted()(rows(1000, 7))
    assert abs(float(novelty.mean()) - 0.5) < 0.05
    assert abs(float((novelty > 0.9).double().mean()) - 0.1) < 0.04


@pytest.mark.parametrize("view", ["shares", "states", "head", "energy"])
def test_every_view_counts(view):
    novelty = fitted()(rows(200, 8, **{view: 6.0}))
    assert float(novelty.mean()) > 0.9, view


def test_one_layer_and_no_classes():
    train, held_out = rows(100, 0), rows(100, 1)
    one = Evidence(held_out.shares[:, :1], held_out.states[:, :0], held_out.head, torch.zeros(100))
    novelty = TransformerNovelty.fit(train.states[:, :0], train.head, None, held_out=one)
    far = Evidence(one.shares + 1, one.states, one.head + 9, torch.zeros(100))
    assert (novelty(far) > 0.95).all()


def test_round_trip():
    novelty, new = fitted(), rows(50, 9)
    again = TransformerNovelty.from_tensors(novelty.tensors(), 3, "adapter")
    torch.testing.assert_close(again.score(new), novelty.score(new), rtol=1e-4, atol=1e-4)


def test_too_few_rows_and_values_that_are_not_finite_are_refused():
    train = rows(500, 0)
    with pytest.raises(InputError, match="novelty: 5 held-out rows; at least 10 are needed"):
        TransformerNovelty.fit(train.states, train.head, None, held_out=rows(5, 1))
    with pytest.raises(InputError, match="novelty: the model's head are not finite"):
        TransformerNovelty.fit(train.states, train.head, None, held_out=rows(50, 1, head=float("inf")))


def test_noise_is_more_novel_than_test_images():
    model = make(vit)
    gp = attached(model)
    familiar = batch(model, 60, seed=50, labels=False)
    strange = {"pixel_values": 4 * familiar["pixel_values"]}
    assert gp.predict(strange).novelty.mean() > 0.7
    assert abs(float(gp.predict(familiar).novelty.mean()) - 0.5) < 0.15
