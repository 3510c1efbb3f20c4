"""Metrics against torchmetrics and scikit-learn, by hand on tiny sets, and their invariances."""

from collections.abc import Callable

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
import torchmetrics.functional.classification as tm
from hypothesis import given, settings
from hypothesis import strategies as st

from sgpa.core.errors import InputError
from sgpa.evaluation import metrics as m

CLASSIFICATION = [m.accuracy, m.matthews, m.nll, m.brier, m.ece, m.mce, m.mce_all_classes]

sets = st.tuples(st.integers(1, 80), st.integers(2, 7), st.integers(0, 2**32 - 1))


def draw(n: int, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = 3 * rng.normal(size=(n, k))
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True), rng.integers(k, size=n)


def scores(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores with ties, and marks with both kinds present."""
    rng = np.random.default_rng(seed)
    out = np.r_[0, 1, rng.integers(2, size=n)]
    return np.round(rng.normal(size=n + 2) + out, 1), out


@settings(deadline=None, max_examples=40)
@given(sets)
def test_classification_equals_torchmetrics_and_sklearn(shape: tuple[int, int, int]) -> None:
    p, y = draw(*shape)
    n, k = p.shape
    tp, ty = torch.tensor(p), torch.tensor(y)
    assert m.accuracy(p, y) == pytest.approx(sk.accuracy_score(y, p.argmax(1)))
    assert m.nll(p, y) == pytest.approx(sk.log_loss(y, p, labels=range(k)))
    assert m.brier(p, y) == pytest.approx(((p - np.eye(k)[y]) ** 2).sum() / n)
    if len(np.unique(np.r_[y, p.argmax(1)])) > 1:  # scikit-learn warns where the correlation is undefined
        assert m.matthews(p, y) == pytest.approx(100 * sk.matthews_corrcoef(y, p.argmax(1)))
    for bins in (10, 15):
        if np.abs(p.max(1)[:, None] - np.linspace(0, 1, bins + 1)).min() < 1e-6:
            continue  # torchmetrics rounds to float32, and a confidence at an edge falls into another bin
        for norm, ours in (("l1", m.ece), ("max", m.mce)):
            theirs = tm.multiclass_calibration_error(tp, ty, num_classes=k, n_bins=bins, norm=norm)
            assert ours(p, y, bins) == pytest.approx(float(theirs), abs=1e-5)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 80), st.integers(0, 2**32 - 1))
def test_detection_equals_sklearn(n: int, seed: int) -> None:
    s, out = scores(n, seed)
    w = np.random.default_rng(seed + 1).uniform(0.1, 5, size=len(s))
    for weights in (None, w):
        assert m.auroc(s, out, weights) == pytest.approx(sk.roc_auc_score(out, s, sample_weight=weights))
        theirs = sk.average_precision_score(out, s, sample_weight=weights)
        assert m.aupr(s, out, weights) == pytest.approx(theirs)
    fpr, tpr, _ = sk.roc_curve(out, s, drop_intermediate=False)
    assert m.fpr_at_95_tpr(s, out) == pytest.approx(fpr[tpr >= 0.95 - 1e-12][0])


def test_reliability_by_hand_with_an_edge_and_certainty() -> None:
    p = [[1.0, 0.0], [1.0, 0.0], [0.75, 0.25], [0.5, 0.5]]
    r = m.reliability(p, [0, 1, 0, 1], bins=4)
    assert r.edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert r.count.tolist() == [0, 1, 1, 2]  # .5 and .75 belong to the bin they close; p = 1 is kept
    assert np.isnan(r.confidence[0])
    assert r.accuracy[1:].tolist() == [0, 1, 0.5]
    assert r.ece == pytest.approx((0.5 + 0.25 + 2 * 0.5) / 4)
    assert r.mce == pytest.approx(0.5)
    assert m.ece(p, [0, 1, 0, 1], 4) == r.ece
    assert m.mce(p, [0, 1, 0, 1], 4) == r.mce
    assert r.as_dict()["confidence"] == [None, 0.5, 0.75, 1.0]


def test_scores_by_hand() -> None:
    p, y = [[0.8, 0.2], [0.4, 0.6], [0.3, 0.7]], [0, 0, 1]
    assert m.accuracy(p, y) == pytest.approx(2 / 3)
    assert m.nll(p, y) == pytest.approx(-np.log([0.8, 0.4, 0.7]).mean())
    assert m.brier(p, y) == pytest.approx((2 * 0.04 + 2 * 0.36 + 2 * 0.09) / 3)
    assert m.matthews(p, y) == pytest.approx(50.0)
    assert m.matthews([[0.9, 0.1]] * 3, y) == 0.0  # one class predicted: undefined, reported as 0


def test_nll_of_a_certain_mistake_is_finite() -> None:
    assert m.nll([[1.0, 0.0]], [1]) == pytest.approx(-np.log(np.finfo(np.float32).tiny))
    assert m.ece([[1.0, 0.0]], [1]) == m.mce([[1.0, 0.0]], [1]) == 1.0


def test_all_class_mce_by_hand() -> None:
    # pairs: (1, 0), (0, 1), (.6, 1), (.4, 0), each alone in its bin
    assert m.mce_all_classes([[1.0, 0.0], [0.6, 0.4]], [1, 0], bins=5) == pytest.approx(1.0)
    assert m.mce_all_classes([[0.9, 0.1], [0.7, 0.3]], [0, 0], bins=5) == pytest.approx(0.3)  # (.1, 0): .1


def test_mce_20_ignores_bins_of_fewer_than_20_answers() -> None:
    p = [[0.9, 0.1]] * 20 + [[0.6, 0.4]] * 19
    y = [0] * 16 + [1] * 4 + [1] * 19
    assert m.mce(p, y) == pytest.approx(0.6)
    assert m.mce_20(p, y) == pytest.approx(0.1)
    assert m.mce_20([*p, [0.6, 0.4]], [*y, 1]) == pytest.approx(0.6)
    assert np.isnan(m.mce_20(p[-19:], y[-19:]))


def test_half_precision_probabilities_are_accepted() -> None:
    p, y = draw(500, 40, 0)
    for dtype, nll_error in ((torch.float16, 1e-3), (torch.bfloat16, 1e-2)):
        low = torch.tensor(p).to(dtype)
        assert m.nll(low, y) == pytest.approx(m.nll(p, y), abs=nll_error)
        assert m.accuracy(low, y) == pytest.approx(m.accuracy(p, y), abs=0.02)
    zero = torch.tensor([[1.0, 0.0]], dtype=torch.float16)
    assert m.nll(zero, [1]) == pytest.approx(24 * np.log(2))  # not 87 nats
    assert m.nll(zero.numpy(), [1]) == pytest.approx(24 * np.log(2))
    assert m.nll(zero.bfloat16(), [1]) == pytest.approx(-np.log(np.finfo(np.float32).tiny))


def test_weights_equal_repetition() -> None:
    s, out = scores(50, 3)
    repeats = np.where(out == 1, 6, 1)
    repeated = np.repeat(s, repeats), np.repeat(out, repeats)
    assert m.aupr(s, out, repeats) == pytest.approx(m.aupr(*repeated))
    assert m.auroc(s, out, repeats) == pytest.approx(m.auroc(s, out))  # AUROC ignores the share of OOD


def test_detection_limits() -> None:
    perfect = [0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1]
    assert m.auroc(*perfect) == m.aupr(*perfect) == 1.0
    assert m.fpr_at_95_tpr(*perfect) == 0.0
    assert m.auroc([1.0] * 4, [0, 0, 0, 1]) == 0.5
    assert m.aupr([1.0] * 4, [0, 0, 0, 1]) == 0.25  # chance level: the share of OOD
    assert m.fpr_at_95_tpr([1.0] * 4, [0, 0, 0, 1]) == 1.0


def test_risk_coverage_by_hand() -> None:
    curve = m.risk_coverage([0.3, 0.1, 0.2, 0.3], [1, 0, 0, 0])
    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1]
    assert curve.risk == pytest.approx([0, 0, 0.5 / 3, 0.25])  # the tie shares its one error
    assert m.aurc([0.3, 0.1, 0.2, 0.3], [1, 0, 0, 0]) == pytest.approx((0.5 / 3 + 0.25) / 4)


def test_regression_against_definitions() -> None:
    rng = np.random.default_rng(0)
    f, y = rng.normal(size=(5, 30)), rng.normal(size=30)
    assert m.mae(f[0], y) == pytest.approx(sk.mean_absolute_error(y, f[0]))
    assert m.rmse(f[0], y) == pytest.approx(np.sqrt(sk.mean_squared_error(y, f[0])))
    density = torch.distributions.Laplace(torch.tensor(f), 0.7).log_prob(torch.tensor(y))
    assert m.laplace_mixture_nll(f, 0.7, y) == pytest.approx(float(-density.exp().mean(0).log().mean()))
    assert m.laplace_mixture_nll([[0.0]], 0.5, [0.0]) == pytest.approx(0.0)  # density 1 / (2 b) = 1
    assert np.isfinite(m.laplace_mixture_nll([[0.0]], 1e-3, [100.0]))


@settings(deadline=None, max_examples=20)
@given(sets)
def test_order_of_inputs_does_not_matter(shape: tuple[int, int, int]) -> None:
    p, y = draw(*shape)
    p, y = np.r_[p, p], np.r_[y, (y + 1) % p.shape[1]]  # ties with different answers
    order = np.random.default_rng(0).permutation(len(y))
    for metric in CLASSIFICATION:
        assert metric(p[order], y[order]) == pytest.approx(metric(p, y), abs=1e-9)
    u, wrong = p.max(1), p.argmax(1) != y
    assert m.aurc(u[order], wrong[order]) == pytest.approx(m.aurc(u, wrong))


@settings(deadline=None, max_examples=20)
@given(sets)
def test_names_of_classes_do_not_matter(shape: tuple[int, int, int]) -> None:
    p, y = draw(*shape)
    names = np.random.default_rng(1).permutation(p.shape[1])
    for metric in CLASSIFICATION:
        assert metric(p[:, names], np.argsort(names)[y]) == pytest.approx(metric(p, y), abs=1e-9)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_monotone_maps_of_the_score_do_not_matter(n: int, seed: int) -> None:
    s, out = scores(n, seed)
    for metric in (m.auroc, m.aupr, m.fpr_at_95_tpr):
        assert metric(np.exp(s), out) == pytest.approx(metric(s, out))
    assert m.auroc(-s, out) == pytest.approx(1 - m.auroc(s, out))


def test_one_bin_and_gap_bound() -> None:
    p, y = draw(200, 5, 0)
    assert m.ece(p, y, 1) == pytest.approx(abs(m.accuracy(p, y) - p.max(1).mean()))
    assert m.ece(p, y) <= m.mce(p, y)


def test_tensors_of_any_precision_are_accepted() -> None:
    p, y = draw(50, 4, 0)
    tensor = torch.tensor(p, dtype=torch.float32, requires_grad=True)
    for metric in CLASSIFICATION:
        assert metric(tensor, torch.tensor(y)) == pytest.approx(metric(p, y), abs=1e-4)
    assert m.auroc(torch.tensor([1.0, 2.0], dtype=torch.bfloat16), torch.tensor([False, True])) == 1.0


GOOD = [[0.5, 0.5], [0.1, 0.9]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: m.nll(GOOD, [0]), "lengths differ: probabilities 2, labels 1"),
        (lambda: m.nll(GOOD, [0, 2]), "labels must be whole numbers from 0 to 1"),
        (lambda: m.nll(GOOD, [0, -1]), "labels must be whole numbers"),
        (lambda: m.nll(GOOD, [0, 0.5]), "labels must be whole numbers"),
        (lambda: m.nll([[1.0, 2.0]], [0]), "sum to 1"),
        (lambda: m.nll([[1.5, -0.5]], [0]), "row 0 has sum 1 and minimum -0.5; all must be at least 0"),
        (lambda: m.nll([[0.5, 0.5], [0.5, 0.6]], [0, 0]), "row 1 has sum 1.1"),
        (lambda: m.nll(torch.tensor([[0.5, 0.6]]).bfloat16(), [0]), "row 0 has sum 1.1"),
        (lambda: m.nll([0.5, 0.5], [0, 1]), "2 axes"),
        (lambda: m.nll(np.zeros((0, 2)), []), "empty"),
        (lambda: m.nll([[np.nan, 0.5]], [0]), "NaN"),
        (lambda: m.ece(GOOD, [0, 1], 0), "bins=0"),
        (lambda: m.auroc([0.1, 0.2], [1, 1]), "only one was given"),
        (lambda: m.aupr([0.1, 0.2], [0, 1], [1, 0]), "positive weight"),
        (lambda: m.auroc([0.1, 0.2], [0, 2]), "only 0"),
        (lambda: m.auroc([0.1, np.inf], [0, 1]), "infinity"),
        (lambda: m.aurc([0.1], [0, 1]), "lengths differ"),
        (lambda: m.mae([0.1], [0, 1]), "lengths differ"),
        (lambda: m.laplace_mixture_nll([[0.1]], 0.0, [0.0]), "scale=0.0"),
        (lambda: m.laplace_mixture_nll([[0.1]], 1.0, [0.0, 1.0]), "samples"),
    ],
)
def test_bad_input_gives_a_one_line_error(call: Callable[[], float], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
