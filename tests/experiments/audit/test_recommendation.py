"""Advice from made tables of numbers."""

import copy

import pytest

from sgpa.experiments.audit.recommendation import best_calibrator, best_detector, recommend

SMALL = 0.005  # a standard error


def table(nll, accuracy=None, auroc=None, ahead_error=SMALL, test=1000):
    """An audit with these NLLs, accuracies and mean AUROCs; all errors are small unless given."""
    accuracy = dict.fromkeys(nll, 0.8) | (accuracy or {})
    auroc = {"entropy": 0.7, "energy": 0.7, "mahalanobis": 0.7, "knn": 0.7, "novelty": 0.7} | (auroc or {})

    def estimate(value, error=SMALL):
        return {"value": value, "error": error}

    methods = {
        name: {
            "scores": {"nll": estimate(nll[name]), "ece": estimate(0.05)},
            "change": {
                "nll": estimate(nll[name] - nll["plain"]),
                "accuracy": estimate(accuracy[name] - accuracy["plain"]),
            },
            "cost": {"time": 1.4 if name == "sgpa" else 1.0},
        }
        for name in nll
    }
    return {
        "methods": methods,
        "nll_differences": {a: {b: estimate(nll[a] - nll[b]) for b in nll if b != a} for a in nll},
        "detection": {
            "mean": {name: estimate(value) for name, value in auroc.items()},
            "novelty_ahead": {
                name: estimate(auroc["novelty"] - value, ahead_error)
                for name, value in auroc.items()
                if name != "novelty"
            },
        },
        "data": {"test": test},
    }


LEVEL = dict.fromkeys(("plain", "temperature", "vector", "matrix", "laplace", "sgpa", "dropout"), 0.6)


def test_calibrated_models_are_left_alone_and_sgpa_is_not_worth_it():
    sentences = recommend(table(LEVEL))
    assert sentences[0].startswith("Keep the probabilities as they are")
    assert sentences[-1] == "SGPA is not worth attaching to this model for these rows."


def test_of_equal_methods_the_cheapest_is_used():
    results = table(LEVEL | {"temperature": 0.5, "matrix": 0.495, "sgpa": 0.499})
    assert best_calibrator(results) == "temperature"
    sentence = recommend(results)[0]
    assert sentence.startswith("Use temperature scaling: it lowers the NLL by 0.100 ± 0.005 to 0.500")
    assert "Structured matrix scaling and SGPA, attached have a lower NLL, but not clearly." in sentence


@pytest.mark.parametrize("name", ["matrix", "laplace", "sgpa", "dropout"])
def test_a_clearly_better_method_is_used_although_it_costs_more(name):
    assert best_calibrator(table(LEVEL | {"temperature": 0.5, name: 0.45})) == name


def test_a_method_that_loses_accuracy_is_not_used():
    results = table(LEVEL | {"temperature": 0.55, "dropout": 0.45}, {"dropout": 0.7})
    assert best_calibrator(results) == "temperature"


def test_a_method_that_is_not_clearly_better_is_not_used():
    assert best_calibrator(table(LEVEL | {"temperature": 0.6 - 1.9 * SMALL})) == "plain"
    assert best_calibrator(table(LEVEL | {"temperature": 0.6 - 2.1 * SMALL})) == "temperature"


def test_a_clear_but_tiny_difference_does_not_count():
    results = table(LEVEL | {"temperature": 0.5, "vector": 0.495})
    results["nll_differences"]["vector"]["temperature"]["error"] = 0.0001
    assert best_calibrator(results) == "temperature"


def test_more_accuracy_is_named():
    results = table(LEVEL | {"matrix": 0.5}, {"matrix": 0.85})
    assert "raises the accuracy by 5.0 points" in recommend(results)[0]


def test_novelty_is_recommended_where_it_is_clearly_ahead():
    results = table(LEVEL, auroc={"novelty": 0.9, "knn": 0.8})
    assert best_detector(results) == ("novelty", True)
    sentences = recommend(results)
    assert sentences[1].startswith("Attach SGPA if you need to recognise unfamiliar inputs")
    assert "distance to the 20th neighbour, 0.800 ± 0.005 (difference 0.100 ± 0.005)" in sentences[1]
    assert sentences[2] == "A prediction with SGPA takes 1.40 times one plain pass."


@pytest.mark.parametrize(
    ("auroc", "error", "words"),
    [
        ({"novelty": 0.81, "mahalanobis": 0.8}, 0.01, "no clear difference"),
        ({"novelty": 0.7, "mahalanobis": 0.8}, 0.01, "clearly less"),
    ],
)
def test_the_best_other_score_is_recommended_otherwise(auroc, error, words):
    results = table(LEVEL, auroc=auroc, ahead_error=error)
    assert best_detector(results) == ("mahalanobis", True)
    sentences = recommend(results)
    assert "use Mahalanobis distance at the output: its mean AUROC is 0.800" in sentences[1]
    assert sentences[1].endswith(words + ".")
    assert "not worth" in sentences[2]


def test_detection_near_chance_is_called_useless():
    chance = {"entropy": 0.5, "energy": 0.5, "mahalanobis": 0.52, "knn": 0.5, "novelty": 0.58}
    sentences = recommend(table(LEVEL, auroc=chance))
    assert sentences[1].startswith("No score recognises the perturbed rows well: the best, SGPA's novelty,")
    assert "not worth" in sentences[2]


def test_without_sgpa_the_other_advice_stays():
    nll = {name: value for name, value in (LEVEL | {"temperature": 0.5}).items() if name != "sgpa"}
    results = table(nll, auroc={"knn": 0.8})
    del results["detection"]["mean"]["novelty"]
    results["detection"]["novelty_ahead"] = {}
    results["skipped"] = {"SGPA, attached": "no attention found in ResNet"}
    assert best_detector(results) == ("knn", True)
    assert recommend(results) == [
        "Use temperature scaling: it lowers the NLL by 0.100 ± 0.005 to 0.500, and the ECE is 0.050 ± 0.005 "
        "instead of 0.050 ± 0.005.",
        "To recognise unfamiliar inputs, use distance to the 20th neighbour: its mean AUROC is 0.800 ± "
        "0.005.",
        "SGPA was not tried: no attention found in ResNet.",
    ]


def test_few_rows_are_named_and_the_table_is_not_changed():
    results = table(LEVEL, test=80)
    before = copy.deepcopy(results)
    assert recommend(results)[-1] == "With 80 test rows, small differences cannot be seen."
    assert results == before
