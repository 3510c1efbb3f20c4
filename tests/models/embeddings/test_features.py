"""Sequences of features as inputs of a model, and of `fit`."""

import numpy as np
import pytest
import torch

import sgpa
from sgpa.core.errors import InputError, NumericalError
from sgpa.core.inputs import Features
from sgpa.models import FeatureConfig, GraphConfig, SgpaConfig, Transformer, from_json, to_json
from sgpa.models.embeddings.features import FeatureEmbedding
from sgpa.training.fit_data import infer_embedding
from support.small_models import small

CONFIG = FeatureConfig(width=6, max_tokens=9)


def model(**options):
    torch.manual_seed(0)
    return Transformer(small(CONFIG, SgpaConfig(num_global=3), **options)).eval()


def test_padding_does_not_matter():
    x = torch.randn(2, 9, 6)
    rows = Features.of(x, [9, 4])
    changed = x.clone()
    changed[1, 4:] = float("nan")
    m = model()
    expected = m.predict(rows, samples=0).probabilities
    torch.testing.assert_close(m.predict(Features(changed, rows.padding), samples=0).probabilities, expected)
    torch.testing.assert_close(m.predict(x[1:, :4], samples=0).probabilities, expected[1:])


def test_tensors_have_no_padding():
    x, m = torch.randn(3, 5, 6), model()
    equal = m.predict(Features.of(x)).probabilities
    torch.testing.assert_close(m.predict(x).probabilities, equal)


def test_scale_of_the_features_does_not_matter():
    embedding, x = FeatureEmbedding(CONFIG, 8), torch.randn(2, 5, 6)
    torch.testing.assert_close(embedding(x)[0], embedding(100 * x + 3)[0], atol=1e-3, rtol=1e-3)


def test_half_precision_is_read():
    x, m = torch.randn(2, 5, 6), model()
    p = [m.predict(inputs, samples=0).probabilities for inputs in (x, x.half())]
    torch.testing.assert_close(*p, atol=1e-2, rtol=1e-2)


def test_dropped_tokens_are_whole_tokens():
    torch.manual_seed(0)
    embedding = FeatureEmbedding(FeatureConfig(width=6, max_tokens=9, drop=0.5), 8).train()
    embedding.project.bias.data.zero_()
    tokens, _ = embedding(torch.randn(4, 9, 6))
    empty = tokens.eq(0).all(-1)
    assert 0 < int(empty.sum()) < 36
    assert not tokens[~empty].eq(0).any()


def test_config_is_saved_and_read(tmp_path):
    m = model()
    assert from_json(to_json(m.config)) == m.config
    m.save_pretrained(tmp_path)
    x = torch.randn(2, 5, 6)
    expected = m.predict(x).probabilities
    torch.testing.assert_close(sgpa.load(tmp_path).predict(x).probabilities, expected)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (lambda: torch.randn(2, 5, 7), "7 features of a token, but the model reads 6"),
        (lambda: torch.randn(2, 10, 6), "10 tokens, but the model reads 9"),
        (lambda: torch.zeros(2, 5, 6, dtype=torch.long), "allowed: floating-point Tensor"),
        (lambda: torch.randn(2, 5), "Tensor \\[N, T, F\\]"),
        (lambda: Features(torch.randn(2, 5, 6), torch.zeros(2, 4, dtype=torch.bool)), "padding=.*\\[2, 4\\]"),
        (lambda: Features(torch.randn(2, 5, 6), torch.zeros(2, 5)), "allowed: bool"),
        (lambda: Features.of(torch.randn(2, 5, 6), [5, 0]), "lengths .*1 to 5"),
        (lambda: Features.of(torch.randn(2, 5, 6), [5]), "2 numbers"),
        (lambda: Features(torch.randn(1, 2, 6), torch.ones(1, 2, dtype=torch.bool)), "all padding"),
    ],
)
def test_wrong_features_are_one_line(inputs, message):
    with pytest.raises(InputError, match=message) as error:
        model().predict(inputs())
    assert "\n" not in str(error.value)


def test_features_that_are_not_finite_are_refused():
    x = torch.randn(2, 5, 6)
    x[1, 2, 3] = float("nan")
    with pytest.raises(NumericalError, match="features that are NaN or infinite"):
        model().predict(x)


def test_other_inputs_are_refused():
    with pytest.raises(InputError, match="expected Features"):
        FeatureEmbedding(CONFIG, 8)("text")


def test_fit_infers_the_embedding():
    x = torch.randn(12, 5, 6)
    for inputs in (x, Features.of(x, [5] * 12)):
        embedding = infer_embedding(inputs)
        assert isinstance(embedding, FeatureConfig)
        assert (embedding.width, embedding.max_tokens) == (6, 5)
    assert not isinstance(embedding, GraphConfig)


@pytest.mark.slow
def test_fit_learns_from_features_with_padding():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(80, 6, 4)).astype(np.float32)
    y = generator.integers(2, size=80)
    x[:, :2, 0] += 3 * (2 * y - 1)[:, None]
    rows = Features.of(torch.from_numpy(x), generator.integers(2, 7, size=80).tolist())
    fitted = sgpa.fit(rows, y, epochs=8)
    label = fitted.predict(rows).label.numpy()
    assert (label == y).mean() > 0.8
