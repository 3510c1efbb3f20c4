import csv
from importlib.resources import files

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from sgpa.core.errors import InputError
from sgpa.core.types import Classification, Regression
from sgpa.data import Dataset
from sgpa.evaluation.evaluate import classification_metrics, detection, evaluate
from sgpa.evaluation.results import OodSet, Subject
from sgpa.gp.likelihoods import LaplaceLikelihood
from sgpa.report.ranking import average_ranks

SUBJECT = Subject("made-up", "kernel", "sgpa", 0)


class Fixed:
    """Inputs are logits, or means and deviations of values."""

    def __init__(self, regression=False):
        self.regression = regression

    def predict(self, inputs):
        if self.regression:
            noise = torch.linspace(-1, 1, 5).unsqueeze(1) * inputs[:, 1]
            return Regression(inputs[:, 0] + noise, torch.tensor(0.5))
        p = inputs.softmax(-1)
        return Classification(p, torch.special.entr(p).sum(-1))


def test_metrics_and_curves_of_classification_and_regression():
    logits, labels = torch.randn(50, 3), torch.randint(0, 3, (50,))
    data = Dataset(logits, labels)
    shifts = {"made-up-c:1": lambda: Dataset(0.5 * logits, labels)}
    results = evaluate(Fixed(), SUBJECT, data, shifts=shifts, ood={"flat": OodSet(0.1 * logits)})
    clean = {r["metric"]: r["value"] for r in results.records if r["evaluation"] == "in-distribution"}
    assert set(clean) == {
        *("accuracy", "nll", "ece", "mce", "mce_all_classes", "brier", "aurc"),
        *("error_auroc", "error_fpr_at_95_tpr"),
    }
    assert clean["nll"] == pytest.approx(torch.nn.functional.cross_entropy(logits, labels).item(), abs=1e-6)
    detection = {r["metric"]: r["value"] for r in results.records if r["evaluation"] == "ood-detection"}
    assert detection["auroc"] > 0.9
    assert detection["ood_share"] == 0.5
    assert {c["kind"] for c in results.curves} == {"reliability", "risk-coverage", "entropy"}
    values, spread = torch.randn(50), torch.rand(50)
    numbers = evaluate(Fixed(True), SUBJECT, Dataset(torch.stack([values, spread], 1), values + 1.0))
    assert {r["metric"]: round(r["value"], 5) for r in numbers.records}["mae"] == 1.0
    assert {r["metric"] for r in numbers.records} == {"mae", "rmse", "nll", "coverage_50", "coverage_90"}


def test_two_classes_have_a_matthews_correlation():
    data = Dataset(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1]))
    values = {r["metric"]: r["value"] for r in evaluate(Fixed(), SUBJECT, data).records}
    assert values["mcc"] == 100


def test_detection_is_reweighted_to_the_reference_size():
    inside, outside = Fixed().predict(torch.randn(40, 4)), Fixed().predict(0.5 * torch.randn(20, 4))
    values = detection(inside, outside, reference_size=60)
    scores = torch.cat([inside.score, outside.score]).numpy()
    labels = np.repeat([0, 1], [40, 20])
    assert values["auroc"] == pytest.approx(roc_auc_score(labels, scores))
    tripled = np.concatenate([scores[:40], np.tile(scores[40:], 3)])
    expected = average_precision_score(np.repeat([0, 1], [40, 60]), tripled)
    assert values["aupr_paper_share"] == pytest.approx(expected)
    assert values["aupr"] == pytest.approx(average_precision_score(labels, scores))


def test_regression_detects_ood_inputs_by_variance():
    calm, wild = torch.tensor([[0.0, 0.1], [1.0, 0.2]]), torch.tensor([[0.0, 2.0], [1.0, 3.0]])
    assert detection(Fixed(True).predict(calm), Fixed(True).predict(wild))["auroc"] == 1.0


def test_average_ranks_reproduce_those_of_the_paper():
    text = files("sgpa.report").joinpath("paper_results.csv").read_text(encoding="utf-8")
    rows = [row | {"value": row["mean"]} for row in csv.DictReader(text.splitlines())]
    checked = 0
    for augmentation in ("none", "three-augment"):
        detections = [
            row
            for row in rows
            if row["evaluation"] == "ood-detection"
            and row["augmentation"] == augmentation
            and row["attention"] == "kernel"
            and row["dataset"].startswith("cifar")
        ]
        for metric in ("auroc", "aupr"):
            ranks = average_ranks(detections, metric)
            for row in rows:
                if row["metric"] == f"rank-{metric}" and row["augmentation"] == augmentation:
                    assert ranks[row["method"]] == pytest.approx(float(row["mean"]), abs=1e-4)
                    checked += 1
    assert checked == 32


def test_error_detection_is_auroc_of_wrong_answers():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 200)
    y, entropy = rng.integers(4, size=200), -(p * np.log(p)).sum(1)
    values = classification_metrics(p, y, entropy)
    assert values["error_auroc"] == pytest.approx(roc_auc_score(p.argmax(1) != y, entropy))
    assert 0 < values["error_fpr_at_95_tpr"] <= 1
    assert values["mce_20"] <= values["mce"]


def test_metrics_that_do_not_exist_are_left_out():
    p = np.array([[0.9, 0.1], [0.2, 0.8]])
    values = classification_metrics(p, np.array([0, 1]), np.array([0.1, 0.2]))
    assert {"error_auroc", "error_fpr_at_95_tpr", "mce_20"}.isdisjoint(values)  # no wrong answer, sparse bins


def test_ranks_need_every_task_of_every_method():
    row = {"dataset": "a", "shift": "b", "metric": "auroc", "method": "mle", "value": 0.5}
    with pytest.raises(InputError, match=r"has no auroc for \("):
        average_ranks([row, row | {"method": "sgpa", "shift": "c"}], "auroc")
    with pytest.raises(InputError, match="no record has the metric aupr"):
        average_ranks([row], "aupr")


def test_the_laplace_likelihood_does_not_depend_on_the_unit_of_targets():
    y = torch.randn(100)
    small, large = LaplaceLikelihood(), LaplaceLikelihood()
    small.initialise(y)
    large.initialise(5000 + 1000 * y)
    f = torch.randn(3, 100, 1)
    assert torch.allclose(large.predict(f).mean, 5000 + 1000 * small.predict(f).mean, rtol=1e-4)
    shift = torch.tensor(1000.0).log()
    assert torch.allclose(large.nll(f, 5000 + 1000 * y), small.nll(f, y) + shift, atol=1e-3)


def test_trust_is_measured_for_right_wrong_and_out_of_distribution_answers():
    p = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.45, 0.55]])
    test = Dataset(torch.zeros(4, 1), torch.tensor([0, 1, 1, 0]))  # right, wrong, right, wrong

    class Fixed:
        def predict(self, inputs):
            return Classification(p[: len(inputs)], torch.zeros(len(inputs)))

    def judge(inputs, _):
        own = len(inputs) == 4
        trusted = np.array([True, True, True, False]) if own else np.array([False, True])
        return trusted, np.array([0.1, 0.2, 0.3, 0.4]) if own else np.array([0.9, 0.25])

    subject = Subject("d", "kernel", "mle", 0)
    results = evaluate(Fixed(), subject, test, ood={"far": OodSet(torch.zeros(2, 1))}, judge=judge)
    values = {(r["shift"], r["metric"]): r["value"] for r in results.records if r["evaluation"] == "trust"}
    assert values == {
        ("", "trusted_right"): 1.0,
        ("", "trusted_wrong"): 0.5,
        ("", "trusted_error"): pytest.approx(1 / 3),
        ("far", "trusted_ood"): 0.5,
        ("far", "novelty_auroc"): pytest.approx(6 / 8),
    }
    without = evaluate(Fixed(), subject, test)
    assert not [r for r in without.records if r["evaluation"] == "trust"]
