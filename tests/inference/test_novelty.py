"""Novelty: distances against explicit formulas, percentiles, what it must and must not depend on."""

import pytest
import torch

from sgpa.core.errors import InputError
from sgpa.inference.novelty import ClassDistances, Novelty
from sgpa.models import Transformer
from sgpa.models.pooled_features import PooledFeatures, pooled_features
from support.small_models import ATTENTIONS, INPUTS, TOKENS, small, texts


def rows(n, seed=0, shift=0.0, labels=None):
    generator = torch.Generator().manual_seed(seed)
    offset = shift if labels is None else 3.0 * labels.double().unsqueeze(-1) + shift
    head = torch.randn(n, 5, generator=generator, dtype=torch.double) + offset
    layers = torch.randn(n, 3, 5, generator=generator, dtype=torch.double) + (
        shift if labels is None else offset.unsqueeze(1)
    )
    return PooledFeatures(layers, head, head[:, :3])


@pytest.mark.parametrize("labelled", [True, False])
def test_distances_are_mahalanobis_distances_with_the_shrunk_covariance(labelled):
    labels = torch.arange(40) % 3 if labelled else None
    x = rows(40, labels=labels).head
    fitted = ClassDistances.fit(x, labels)
    groups = [x[labels == c] for c in range(3)] if labelled else [x]
    centred = torch.cat([group - group.mean(0) for group in groups])
    C = centred.T @ centred / 40
    level, e, n = C.trace() / 5, 5, 40
    squares = C.square().sum() / e**2
    weight = ((squares + level**2) / ((n + 1) * (squares - level**2 / e))).clamp(0.1, 1.0)
    precision = torch.linalg.inv((1 - weight) * C + weight * level * torch.eye(e))
    y = rows(7, seed=1).head
    each = [torch.einsum("ne,ef,nf->n", y - g.mean(0), precision, y - g.mean(0)) for g in groups]
    assert torch.allclose(fitted.to_class(y), torch.stack(each).amin(0))


def test_novelty_is_the_percentile_among_held_out_rows():
    labels = torch.arange(300) % 3
    held_out = rows(200, seed=1, labels=torch.arange(200) % 3)
    novelty = Novelty.fit(rows(300, labels=labels), labels, held_out=held_out)
    own = novelty(held_out)
    assert torch.allclose(own.sort().values, torch.arange(200).double() / 200)
    fresh = novelty(rows(2000, seed=2, labels=torch.arange(2000) % 3))
    assert abs(fresh.mean() - 0.5) < 0.06
    assert abs((fresh > 0.9).double().mean() - 0.1) < 0.05
    assert novelty(rows(50, seed=3, shift=20.0)).min() == 1.0


def test_numbers_instead_of_classes_need_neither_labels_nor_logits():
    def bare(f):
        return PooledFeatures(f.layers, f.head)

    novelty = Novelty.fit(bare(rows(100)), None, held_out=bare(rows(60, seed=1)))
    assert novelty(bare(rows(20, seed=2, shift=9.0))).min() > 0.98


def test_saved_statistics_give_the_same_answers():
    labels = torch.arange(60) % 3
    novelty = Novelty.fit(rows(60, labels=labels), labels, held_out=rows(30, seed=1))
    again = Novelty.from_tensors({name: value.clone() for name, value in novelty.tensors().items()}, 4)
    new = rows(20, seed=2)
    assert torch.equal(again(new), novelty(new))


def test_fewer_rows_than_dimensions_are_enough():
    novelty = Novelty.fit(wide(12), None, held_out=wide(12, seed=1))
    assert novelty(wide(5, seed=2, shift=10.0)).min() == 1.0


def wide(n, seed=0, shift=0.0):
    x = torch.randn(n, 2, 64, generator=torch.Generator().manual_seed(seed)) + shift
    return PooledFeatures(x, x[:, 0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Novelty.fit(rows(9), None, held_out=rows(20)), "9 training rows; at least 10"),
        (lambda: Novelty.fit(rows(20), None, held_out=rows(3)), "3 held-out rows; at least 10"),
        (lambda: PooledFeatures(torch.zeros(1, 1, 2), torch.tensor([[float("nan")]])), "head are not finite"),
    ],
)
def test_bad_input_is_one_line(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("attention", ["sdp", "kernel", "orthogonal", "standard"])
def test_features_are_deterministic_and_do_not_depend_on_the_batch(kind, attention):
    embedding, make = INPUTS[kind]
    model = Transformer(small(embedding, ATTENTIONS[attention], depth=3)).train()
    inputs = make()
    features = pooled_features(model, inputs)
    single = pooled_features(model, inputs, batch_size=1)
    assert features.layers.shape == (len(inputs), 2, 8)
    for name in ("layers", "head", "logits"):
        assert torch.allclose(getattr(features, name), getattr(single, name), atol=1e-5), name
    assert model.training  # modes are given back


def test_padding_does_not_change_features():
    model = Transformer(small(TOKENS, ATTENTIONS["orthogonal"], depth=2)).double().eval()
    ids = texts()
    together, alone = pooled_features(model, ids), pooled_features(model, ids[1:2, :4])
    assert torch.allclose(together.layers[1], alone.layers[0])


@pytest.mark.parametrize("form", ["orthogonal", "cheng-boots", "standard"])
def test_features_of_a_sampled_model_are_those_of_its_posterior_means(form):
    model = Transformer(small(attention=ATTENTIONS[form], depth=3, dropout=0.0)).eval()
    x = torch.randn(4, 1, 8, 8)
    assert torch.allclose(pooled_features(model, x).logits, model.moments(x)[0], atol=1e-5)
