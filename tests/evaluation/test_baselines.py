"""Baselines: as good as the reference implementation, on features that know only the training rows."""

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression as ScikitLogisticRegression
from sklearn.linear_model import Ridge

from sgpa.core.inputs import Graphs, Words
from sgpa.data import Dataset, Splits
from sgpa.evaluation import metrics
from sgpa.evaluation.baselines import LogisticRegression, _fit_logistic, _linear, baselines
from sgpa.evaluation.simple_features import feature_name, simple_features


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(0))
    x, y = (
        torch.tensor(data.images, dtype=torch.float32).unsqueeze(1)[order],
        torch.tensor(data.target)[order],
    )
    return Splits(*(Dataset(x[a:b], y[a:b]) for a, b in ((0, 300), (300, 400), (400, 800))))


def graphs(sizes):
    """Chains of atoms of type 0 that end in an atom of type 1."""
    most = max(sizes)
    nodes = torch.full((len(sizes), most), -1)
    edges, types = torch.full((len(sizes), 2 * most, 2), -1), torch.full((len(sizes), 2 * most), -1)
    for row, n in enumerate(sizes):
        nodes[row, :n] = torch.tensor([0] * (n - 1) + [1])
        both = torch.tensor([(i, i + 1) for i in range(n - 1)] + [(i + 1, i) for i in range(n - 1)]).reshape(
            -1, 2
        )
        edges[row, : len(both)], types[row, : len(both)] = both, 0
    return Graphs(nodes, edges, types, torch.zeros(len(sizes), most, 2))


def test_logistic_regression_equals_that_of_scikit_learn(digits):
    x = simple_features(digits.train)[0].astype(np.float32)
    y = digits.train.targets.numpy()
    weights = np.zeros((x.shape[1] + 1, 10))
    for _ in range(5):
        weights = _fit_logistic(x, y, weights, penalty=1.0)
    reference = ScikitLogisticRegression(C=1.0, max_iter=5000, tol=1e-8).fit(x, y)
    ours, theirs = (np.exp(z - np.logaddexp.reduce(z, 1, keepdims=True)) for z in (
        _linear(x, weights), reference.decision_function(x)
    ))  # fmt: skip
    assert ours == pytest.approx(theirs, abs=0.01)


def test_classes_have_the_majority_and_a_good_logistic_regression(digits):
    majority, logistic = baselines(digits)
    assert [majority.id, logistic.id] == ["majority", "logistic"]
    y = digits.test.targets
    assert (majority.prediction.label == digits.train.targets.bincount().argmax()).all()
    assert metrics.accuracy(logistic.prediction.probabilities, y) > 0.85
    assert metrics.nll(logistic.prediction.probabilities, y) < 0.6
    assert logistic.seconds > 0


def test_logistic_regression_as_a_predictor_gives_the_same_answers(digits):
    answers = baselines(digits)[1].prediction
    again = LogisticRegression.fit(digits).predict(digits.test.inputs)
    assert again.probabilities == pytest.approx(answers.probabilities)
    one = LogisticRegression.fit(digits).predict(digits.test.inputs[:1])
    assert one.probabilities == pytest.approx(answers.probabilities[:1])


def test_the_penalty_is_chosen_on_held_out_rows(digits):
    """With labels of chance the strongest penalty is best: the answers are those of the majority."""
    generator = torch.Generator().manual_seed(0)
    shuffled = Splits(*(
        Dataset(part.inputs, torch.randint(0, 10, (len(part),), generator=generator))
        for part in (digits.train, digits.validation, digits.test)
    ))  # fmt: skip
    _, logistic = baselines(shuffled)
    assert metrics.nll(logistic.prediction.probabilities, shuffled.test.targets) < 2.5  # log 10 = 2.30


def test_values_have_the_mean_and_a_ridge_regression():
    sizes = [2 + i % 9 for i in range(90)]
    data = Dataset(graphs(sizes), torch.tensor(sizes, dtype=torch.float32))
    splits = Splits(data[:60], data[60:75], data[75:])
    mean, ridge = baselines(splits)
    assert [mean.id, ridge.id] == ["mean", "ridge"]
    assert mean.prediction.mean.unique().numel() == 1
    errors = [float((r.prediction.mean - splits.test.targets).abs().mean()) for r in (mean, ridge)]
    assert errors[1] < 0.2 * errors[0]
    assert (ridge.prediction.scale > 0).all()


@pytest.mark.parametrize("rows", [12, 50])
def test_ridge_regression_equals_that_of_scikit_learn_for_few_and_many_rows(rows):
    sizes = [2 + (7 * i) % 11 for i in range(rows + 30)]
    data = Dataset(graphs(sizes), torch.randn(len(sizes), generator=torch.Generator().manual_seed(0)))
    splits = Splits(data[:rows], data[rows : rows + 15], data[rows + 15 :])
    x, held_out, test = (
        part.toarray() for part in simple_features(splits.train, splits.validation, splits.test)
    )
    assert (len(x) > x.shape[1]) == (rows == 50)
    mean, std = x.mean(0), np.where(x.std(0) > 1e-9, x.std(0), np.inf)
    fits = [
        Ridge(alpha=10.0**k * x.shape[1]).fit((x - mean) / std, splits.train.targets)
        for k in range(3, -4, -1)
    ]
    errors = [
        np.abs(f.predict((held_out - mean) / std) - splits.validation.targets.numpy()).mean() for f in fits
    ]
    expected = fits[int(np.argmin(errors))].predict((test - mean) / std)
    assert baselines(splits)[1].prediction.mean.numpy() == pytest.approx(expected, abs=1e-6)


def test_features_of_texts_are_weighted_terms_of_the_training_rows():
    train = Dataset(torch.tensor([[2, 5, 6, 3], [2, 5, 7, 3]]), torch.tensor([0, 1]))
    new = Dataset(torch.tensor([[2, 9, 9, 3]]), torch.tensor([0]))
    x, other = simple_features(train, new)
    assert sparse.issparse(x)
    assert sparse.linalg.norm(x, axis=1) == pytest.approx([1, 1])
    assert x.shape[1] == other.shape[1] == 4  # terms of both rows: 2, 5, 3 and the pair (2, 5)
    assert other.toarray()[0].nonzero()[0].size == 2  # only the marks of start and end are known


def test_padding_is_no_term():
    ids = torch.tensor([[2, 5, 3, 0, 0], [2, 6, 3, 0, 0]])
    data = Dataset(ids, torch.tensor([0, 1]), lengths=torch.tensor([3, 3]))
    assert simple_features(data)[0].shape[1] == 2


def test_equal_molecules_have_equal_features_in_any_order_of_atoms():
    chain = graphs([4])
    order = torch.tensor([3, 1, 0, 2])  # new place of each atom
    moved = Graphs(chain.nodes[:, order.argsort()], torch.where(chain.edges < 0, -1, order[chain.edges]),
                   chain.edge_types, chain.identifiers)  # fmt: skip
    both = Graphs(*(torch.cat([getattr(g, n) for g in (chain, moved)]) for n in Graphs.__dataclass_fields__))
    x = simple_features(Dataset(both, torch.zeros(2)))[0].toarray()
    assert x[0] == pytest.approx(x[1])
    assert x[0].any()


def test_features_have_names():
    assert feature_name(torch.zeros(1, 3, 8, 8)) == "pixels"
    assert feature_name(torch.zeros(1, 8).long()) == "TF-IDF"
    assert feature_name(graphs([2])) == "atom counts"


def test_padding_does_not_change_mean_features():
    layers, ids = torch.randn(3, 5, 2, 4), torch.tensor([[1, 2, 0, 0, 0], [1, 2, 3, 4, 5], [1, 0, 0, 0, 0]])
    spoiled = torch.where((ids == 0)[..., None, None], 1e6, layers)
    data = [Dataset(Words(ids, x), torch.tensor([0, 1, 0])) for x in (layers, spoiled)]
    one, other = (simple_features(part)[0] for part in data)
    assert one == pytest.approx(other)
    assert one.shape == (3, 8)
    assert feature_name(data[0].inputs) == "mean features"


def test_constant_pixels_do_no_harm():
    x = torch.zeros(12, 1, 4, 4)
    data = Dataset(x, torch.tensor([0, 1] * 6))
    _, logistic = baselines(Splits(data[:8], data[8:10], data[10:]))
    assert logistic.prediction.probabilities.isfinite().all()
