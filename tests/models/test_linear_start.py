"""Models of texts that start as logistic regression on counts of tokens."""

from dataclasses import replace

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from sgpa.data import Dataset
from sgpa.methods import Mle
from sgpa.models import KernelAttentionConfig, MeanFieldConfig, TokenConfig, Transformer
from sgpa.models.linear_start import TokenCounts, linear_start, logistic_regression, token_shares
from sgpa.training.optim import OptimConfig
from sgpa.training.trainer import Trainer
from support.small_models import small

CONFIG = TokenConfig(vocabulary=30, max_tokens=20, embedding_width=16, scale=0.3, linear_start=True)
ZERO = torch.zeros(5, 3), torch.zeros(3)


def texts(rows, classes=2):
    """Rows of tokens; class k has more of tokens 1 + k."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 30, (rows, 20), generator=generator)
    y = torch.randint(classes, (rows,), generator=generator)
    ids[:, :5] = 1 + y.unsqueeze(1)
    ids[::3, 12:] = 0
    return ids, y


def model(embedding=CONFIG, **options):
    torch.manual_seed(0)
    sizes = {"width": 16, "depth": 1, "outputs": 2, "pooling": "sequence"} | options
    return Transformer(small(embedding, KernelAttentionConfig(), **sizes))


@pytest.mark.parametrize(("classes", "group"), [(2, 1), (4, 1), (2, 4)])
def test_start_classifies_before_any_training(classes, group):
    ids, y = texts(200, classes)
    m = model(replace(CONFIG, group=group), outputs=classes)
    assert linear_start(m, Dataset(ids[:100], y[:100]), Dataset(ids[100:150], y[100:150]))
    assert float((m.predict(ids[100:]).label == y[100:]).float().mean()) > 0.9


def test_logistic_regression_equals_that_of_scikit_learn():
    torch.manual_seed(0)
    X, y = torch.randn(60, 5), torch.randint(3, (60,))
    W, b = logistic_regression(lambda W: X @ W, y, ZERO, C=2.0)
    expected = LogisticRegression(C=2.0, tol=1e-8).fit(X.numpy(), y.numpy())
    p = torch.from_numpy(expected.predict_proba(X.numpy())).double()
    torch.testing.assert_close((X @ W + b).softmax(-1).double(), p, atol=2e-3, rtol=2e-3)


def test_a_regression_from_near_its_solution_finds_the_same():
    torch.manual_seed(0)
    X, y = torch.randn(60, 5), torch.randint(3, (60,))
    first = logistic_regression(lambda W: X @ W, y, ZERO, C=1.0)
    again = logistic_regression(lambda W: X @ W, y, first, C=2.0)
    expected = logistic_regression(lambda W: X @ W, y, ZERO, C=2.0)
    torch.testing.assert_close(X @ again[0] + again[1], X @ expected[0] + expected[1], atol=5e-3, rtol=5e-3)


def test_shares_leave_out_padding(monkeypatch):
    monkeypatch.setattr("sgpa.models.linear_start.AT_ONCE", 1)
    share = torch.cat(list(token_shares(torch.tensor([[1, 1, 2, 0], [2, 3, 0, 0]]), CONFIG)))
    assert share[0, 1] == pytest.approx(2 / 3)
    assert share[:, 0].tolist() == [0, 0]
    assert share.shape == (2, 30)


def test_product_with_counts_equals_that_of_their_table():
    ids, _ = texts(40)
    counts = TokenCounts.of(ids, CONFIG)
    share = torch.cat(list(token_shares(ids, CONFIG)))  # [N, V]
    rows = (share > 0).sum(0)
    idf = (41 / (1 + rows)).log() + 1  # [V]
    X = (share - share.mean(0)) * idf
    X = X / X.square().sum(1).mean().sqrt()
    torch.testing.assert_close(counts.idf, idf)
    W = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(counts.linear(ids)(W), X @ W, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("flipped", [0, 40])
def test_held_out_rows_choose_the_penalty(flipped, monkeypatch):
    chosen = []
    original = logistic_regression

    def spy(linear, y, start, C):
        chosen.append(C)
        return original(linear, y, start, C)

    monkeypatch.setattr("sgpa.models.linear_start.logistic_regression", spy)
    ids, y = texts(200)
    held_out = Dataset(ids[100:], torch.cat([1 - y[100 : 100 + flipped], y[100 + flipped :]]))
    assert linear_start(model(), Dataset(ids[:100], y[:100]), held_out)
    # a weaker penalty is more confident: worse where many held-out labels contradict the training rows
    assert chosen == ([30.0, 100.0, 300.0] if not flipped else [30.0, 100.0])


@pytest.mark.parametrize(
    "other",
    [
        model(replace(CONFIG, linear_start=False)),
        model(replace(CONFIG, embedding_width=8)),
        model(outputs=1, likelihood="laplace"),
        model(weights=MeanFieldConfig()),
    ],
    ids=["not asked for", "projected", "regression", "random weights"],
)
def test_other_models_stay_as_they_are(other):
    ids, y = texts(40)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    assert not linear_start(other, Dataset(ids, y), Dataset(ids, y))
    for name, value in other.state_dict().items():
        assert torch.equal(value, before[name])


def test_start_is_kept_where_training_makes_it_worse():
    ids, y = texts(120)
    optim = OptimConfig(epochs=2, batch_size=10, lr=3.0, final_lr=0.0, select_every=1)
    config = small(CONFIG, KernelAttentionConfig(), width=16, depth=1, outputs=2, pooling="sequence")
    train, held_out = Dataset(ids[:80], y[:80]), Dataset(ids[80:], y[80:])
    trained = Trainer(
        method=Mle(attention=KernelAttentionConfig()),
        config=config, optim=optim, train=train, validation=held_out, seed=0,
    ).fit()  # fmt: skip
    torch.manual_seed(0)
    start = Transformer(config)
    assert linear_start(start, train, held_out)
    torch.testing.assert_close(
        trained.predict(held_out.inputs).probabilities, start.predict(held_out.inputs).probabilities
    )
