"""Single test rows: their scores, the confusion of classes, and the rows that are shown."""

import pytest
import torch

from sgpa.core.types import Classification, Regression
from sgpa.evaluation import metrics
from sgpa.evaluation.cases import cases, covered, row_scores


def show(row):
    return {"text": f"row {row}"}


def classes():
    p = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.55, 0.45], [0.3, 0.7], [0.99, 0.01]], dtype=torch.double)
    return Classification(p, torch.zeros(5)), torch.tensor([0, 0, 0, 1, 1])


def test_scores_of_rows_average_to_the_metrics():
    prediction, y = classes()
    scores = row_scores(prediction, y)
    assert scores["accuracy"] == [1, 0, 1, 1, 0]
    assert sum(scores["nll"]) / 5 == pytest.approx(metrics.nll(prediction.probabilities, y), abs=1e-4)


def test_scores_of_values_average_to_the_metrics():
    generator = torch.Generator().manual_seed(0)
    prediction = Regression(torch.randn(3, 20, generator=generator), torch.tensor(0.7))
    y = torch.randn(20, generator=generator)
    scores = row_scores(prediction, y)
    assert sum(scores["mae"]) / 20 == pytest.approx(metrics.mae(prediction.mean, y), abs=1e-4)
    nll = metrics.laplace_mixture_nll(prediction.samples, 0.7, y)
    assert sum(scores["nll"]) / 20 == pytest.approx(nll, abs=1e-4)
    assert scores["coverage_90"] == covered(prediction, y)[0.9].tolist()


def test_wrong_answers_are_shown_surest_first():
    prediction, y = classes()
    shown = cases(prediction, y, show, ("cat", "dog"))
    assert [case["row"] for case in shown["surest_wrong"]] == [4, 1]
    assert shown["surest_wrong"][0] == {
        "row": 4, "answer": "cat", "truth": "dog", "probability": 0.99, "text": "row 4",
    }  # fmt: skip
    assert [case["row"] for case in shown["least_sure"]][:2] == [2, 3]
    assert shown["confusion"] == [[2, 1], [1, 1]]
    assert shown["classes"] == ["cat", "dog"]


def test_many_classes_have_no_confusion_table():
    p = torch.eye(30, dtype=torch.double)
    assert "confusion" not in cases(Classification(p, torch.zeros(30)), torch.arange(30), show)


def test_values_are_shown_by_error_and_by_width():
    samples = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 4.0]])
    prediction = Regression(samples, torch.tensor(0.1))
    shown = cases(prediction, torch.tensor([0.1, 5.0, 2.0]), show)
    assert shown["largest_errors"][0]["row"] == 1
    assert shown["widest"][0]["row"] == 2
    assert shown["largest_errors"][0]["low"] < 0 < shown["largest_errors"][0]["high"]


def test_rows_that_are_sure_and_wrong_have_the_nll_of_the_metric():
    prediction = Classification(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.zeros(2))
    y = torch.tensor([1, 1])
    assert sum(row_scores(prediction, y)["nll"]) / 2 == pytest.approx(
        metrics.nll(prediction.probabilities, y)
    )
