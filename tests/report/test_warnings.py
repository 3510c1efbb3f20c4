"""What the report warns of."""

from typing import Any

import numpy as np
import torch

from sgpa.core.inputs import Graphs
from sgpa.data import Dataset
from sgpa.data.overlap import shared_rows
from sgpa.report.figures.style import looks
from sgpa.report.sections.blocks import Material
from sgpa.report.sections.warnings import REPAIRS, remarks, warnings
from sgpa.report.tables import aggregate
from support.fake_results import synthetic


def material(results: dict[str, Any]) -> Material:
    cells = aggregate(results["records"])
    return Material(("digits", ""), cells, results["curves"], {}, looks(row for row, _ in cells))


def test_comparable_methods_give_no_warning() -> None:
    assert alike(synthetic()) == []


def test_collapsed_layers_are_warned_about() -> None:
    results = synthetic()
    for curve in results["curves"]:
        if curve["kind"] == "training" and curve["method"] == "sgpa":
            for name in ("kl_g", "kl_a"):
                curve["data"]["layers"][name] = [[kl, 0.01, kl] for kl, *_ in curve["data"]["layers"][name]]
    (warning,) = alike(results)
    assert warning.startswith("SGPA: the KL of layer 2 ends below 0.1 nats.")


def test_numerical_repairs_are_warned_about() -> None:
    results = synthetic()
    for curve in results["curves"]:
        if curve["kind"] == "training" and curve["method"] == "sgpa":
            curve["data"]["numerics"] = {"jitter_raised": 2}
    (warning,) = alike(results)
    assert warning == "SGPA: in training the jitter of a Gram matrix was raised 6 times."


def test_different_seeds_epochs_and_test_inputs_are_warned_about() -> None:
    results = synthetic()
    results["records"] = [r for r in results["records"] if (r["method"], r["seed"]) != ("sgpa", 2)]
    for curve in results["curves"]:
        if curve["method"] == "sgpa" and curve["kind"] == "training":
            curve["data"]["epoch"] = [2 * epoch for epoch in curve["data"]["epoch"]]
        if curve["method"] == "sgpa" and curve["kind"] == "reliability":
            curve["data"]["count"] = [2 * count for count in curve["data"]["count"]]
    assert alike(results) == [
        "Seeds differ: 0, 1 and 2 for MLE; 0 and 1 for SGPA.",
        "Epochs of all training stages differ: 40 for MLE; 80 for SGPA.",
        "Test inputs differ: 400 for MLE; 800 for SGPA.",
    ]


def alike(results: dict[str, Any]) -> list[str]:
    """The warnings without that of the few answers, which 400 made-up ones always give."""
    return [warning for warning in warnings(material(results)) if not warning.startswith("MCE of")]


def test_every_repair_that_is_counted_is_shown() -> None:
    results = synthetic()
    for curve in results["curves"]:
        if curve["kind"] == "training":
            curve["data"]["numerics"] = dict.fromkeys(REPAIRS, 1)
    for warning in alike(results):
        assert all(f"{what} 3 times" in warning for what in REPAIRS.values())


def test_passes_in_float64_are_a_remark_and_no_warning() -> None:
    results = synthetic()
    training = [c for c in results["curves"] if c["kind"] == "training" and c["method"] == "sgpa"]
    training[0]["data"]["numerics"] = {"float64_passes": 1}
    assert alike(results) == []
    one = "SGPA: one training pass of a layer was computed in float64, because float32 was too inaccurate."
    assert remarks(material(results)) == [one]
    training[1]["data"]["numerics"] = {"float64_passes": 1999}
    several = (
        "SGPA: 2,000 training passes of layers were computed in float64, because float32 was too inaccurate."
    )
    assert remarks(material(results)) == [several]


def with_data(results: dict[str, Any], **changes: Any) -> dict[str, Any]:
    facts = {"fingerprint": "a1", "train": 100, "validation": 10, "test": 40, "test_rows_in_train": 0}
    for method in ("mle", "sgpa"):
        who = {"dataset": "digits", "attention": "kernel", "method": method, "seed": 0, "shift": ""}
        data = facts | (changes if method == "sgpa" else {})
        results["curves"].append({"kind": "data", **who, "data": data})
    return results


def test_methods_with_the_same_data_give_no_warning() -> None:
    assert alike(with_data(synthetic())) == []


def test_methods_with_different_data_are_warned_about() -> None:
    results = with_data(synthetic(), fingerprint="b2", train=90)
    assert alike(results) == [
        "Training rows differ: 100 for MLE; 90 for SGPA.",
        "Data differ: a1 for MLE; b2 for SGPA.",
    ]


def test_methods_with_another_split_of_the_same_data_are_warned_about() -> None:
    results = with_data(synthetic(), train_digest="c3", test_digest="d4")
    assert alike(results) == []  # the other method was evaluated before digests were kept
    for curve in results["curves"]:
        if curve["kind"] == "data":
            curve["data"] = {"train_digest": "c3", "test_digest": "e5"} | curve["data"]
    assert alike(results) == ["Contents of test rows differ: e5 for MLE; d4 for SGPA."]


def test_test_rows_in_the_training_data_are_warned_about() -> None:
    (warning,) = alike(with_data(synthetic(), test_rows_in_train=3))
    assert warning.startswith("3 of 40 test rows occur in the training data")


def test_an_mce_that_few_answers_decide_is_warned_about() -> None:
    results = synthetic(("mle",), (0,))
    for curve in results["curves"]:
        if curve["kind"] == "reliability":
            data = curve["data"]
            bins = len(data["count"])
            data |= {"count": [50] * bins, "confidence": [0.5] * bins, "accuracy": [0.4] * bins}
    assert warnings(material(results)) == []
    for curve in results["curves"]:
        if curve["kind"] == "reliability":
            curve["data"]["count"][0], curve["data"]["accuracy"][0] = 3, 0.0
    (warning,) = warnings(material(results))
    assert warning.startswith("MCE of MLE is that of a bin of fewer than 20 answers")


def test_rows_are_compared_without_padding() -> None:
    ids = torch.tensor([[1, 2, 0], [3, 0, 0]])
    assert shared_rows(Dataset(ids, torch.zeros(2)), Dataset(ids[:, :2], torch.zeros(2))) == 2
    images = torch.from_numpy(np.arange(48, dtype=np.float32).reshape(3, 1, 4, 4))
    assert shared_rows(Dataset(images, torch.zeros(3)), Dataset(images[1:2] + 0, torch.zeros(1))) == 1
    assert shared_rows(Dataset(images, torch.zeros(3)), Dataset(images[1:2] + 1, torch.zeros(1))) == 0
    nodes, edges = torch.tensor([[0, 1, -1]]), torch.tensor([[[0, 1], [1, 0]]])
    graphs = Graphs(nodes, edges, torch.zeros(1, 2, dtype=torch.long), torch.randn(1, 3, 2))
    other = Graphs(nodes[:, :2], edges, graphs.edge_types, torch.randn(1, 2, 2))
    assert shared_rows(Dataset(graphs, torch.zeros(1)), Dataset(other, torch.zeros(1))) == 1
