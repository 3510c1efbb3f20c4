"""The judgement of a user's model: errors over rows, red sentences, and single rows on the page."""

import numpy as np
import pytest

from sgpa.report import judge, write_report
from sgpa.report.judgement import standard_error

ROWS = 40


def user_results(model, logistic, majority=None, **training):
    """Results of a user's run with these scores of single rows: method -> (accuracy, NLL) per row."""
    methods = {("kernel", "sgpa"): model, ("", "logistic:pixels"): logistic}
    methods |= {} if majority is None else {("", "majority"): majority}
    records, curves = [], []
    for (attention, method), (right, nll) in methods.items():
        who = {"dataset": "photos", "augmentation": "", "attention": attention, "method": method, "seed": 0}
        for name, values in (("accuracy", right), ("nll", nll)):
            where = {"evaluation": "in-distribution", "shift": "", "metric": name}
            records.append({**who, **where, "value": float(np.mean(values))})
        data = {"accuracy": list(map(int, right)), "nll": list(map(float, nll))}
        curves.append({**who, "kind": "rows", "shift": "", "data": data})
    who = {"dataset": "photos", "attention": "kernel", "method": "sgpa", "seed": 0, "shift": ""}
    if training:
        curves.append({**who, "kind": "training", "data": training})
    return {"schema": 1, "title": "photos", "records": records, "curves": curves,
            "run": {"recipe": {"methods": ["sgpa", "ts"]}}}  # fmt: skip


def scores(accuracy, nll, seed=0):
    rng = np.random.default_rng(seed)
    return np.arange(ROWS) < round(accuracy * ROWS), nll + 0.1 * rng.normal(size=ROWS)


def test_a_better_model_has_no_problems():
    judgement = judge(user_results(scores(0.9, 0.3), scores(0.6, 0.9, 1), scores(0.3, 1.1, 2)))
    assert judgement.problems == ()
    assert (
        "SGPA on 40 test rows: accuracy 90.00\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}4.80" in judgement.summary
    )
    assert "clearly better than Logistic regression (pixels) in accuracy and NLL" in judgement.summary


def test_errors_over_rows_are_binomial():
    right = np.arange(100) < 80
    assert standard_error(right.astype(float)) == pytest.approx(np.sqrt(0.8 * 0.2 / 99))
    assert standard_error(np.ones(1)) is None


def test_a_baseline_that_wins_is_named_with_the_paired_error():
    """Scores of rows vary much more than their differences: only a paired comparison sees the difference."""
    rows = 3 * np.random.default_rng(0).random(ROWS)
    right = np.arange(ROWS) < 20
    (problem,) = judge(user_results((right, rows + 0.2), (right, rows + 0.01 * rows))).problems
    assert problem.startswith("Logistic regression (pixels) is better than SGPA: NLL")
    assert "accuracy" not in problem
    assert "the same 40 test rows" in problem


def test_a_difference_within_the_paired_error_is_none():
    noise = np.random.default_rng(1).normal(size=ROWS)
    model, other = scores(0.5, 0.7), (np.arange(ROWS) < 20, 0.7 + noise - noise.mean() - 0.01)
    assert judge(user_results(model, other)).problems == ()


def test_a_model_like_the_majority_has_learned_nothing():
    problems = judge(user_results(scores(0.5, 0.7), scores(0.4, 0.8, 1), scores(0.5, 0.72, 2))).problems
    assert "no better than a constant prediction: accuracy 50.00" in problems[0]
    assert "majority class 50.00" in problems[0]


def test_one_answer_for_all_rows_is_a_collapse():
    results = user_results(scores(0.5, 0.7), scores(0.4, 0.8, 1))
    data = {"classes": ["cat", "dog"], "confusion": [[0, 20], [1, 19]], "surest_wrong": [], "least_sure": []}
    results["curves"].append(results["curves"][0] | {"kind": "cases", "data": data})
    assert "has collapsed: 97.50\N{NO-BREAK SPACE}% of its answers are “dog”" in judge(results).problems[0]


def test_rising_validation_nll_and_a_worse_second_stage_are_named():
    training = {"epoch": [1, 2, 3], "nll": [1, 0.5, 0.2], "validation": [None, 0.712, 0.869]}
    results = user_results(scores(0.9, 0.3), scores(0.6, 0.9), earlier_validation=[0.8, 0.7], **training)
    worse, rising = judge(results).problems
    assert worse.startswith(
        "The second stage of SGPA did not improve on its point model: validation NLL 0.700 before"
    )
    assert "rose from 0.712 to 0.869" in rising
    steady = user_results(
        scores(0.9, 0.3), scores(0.6, 0.9), **(training | {"validation": [0.9, 0.71, 0.72]})
    )
    assert judge(steady).problems == ()


def test_a_training_that_was_too_short_is_named():
    falling = {"epoch": [1, 2, 3, 4, 5], "nll": [1.0] * 5, "validation": [2.0, 1.5, 1.0, 0.6, 0.5]}
    (problem,) = judge(user_results(scores(0.9, 0.3), scores(0.6, 0.9), **falling)).problems
    assert problem == (
        "The validation NLL of SGPA still fell at the end of its training, by 0.100 in the last fifth: "
        "more steps may help."
    )
    results = user_results(scores(0.9, 0.3), scores(0.6, 0.9), **falling)
    results["curves"][-1]["method"] = (
        "mle"  # the first stage of the model that predicts ends early on purpose
    )
    assert judge(results).problems == ()


def test_the_judged_model_is_the_first_of_the_recipe():
    results = user_results(scores(0.9, 0.3), scores(0.6, 0.9))
    for record in [r for r in results["records"] if r["method"] == "sgpa"]:
        results["records"].append(record | {"method": "ts"})
    results["curves"].append(results["curves"][0] | {"method": "ts"})
    assert judge(results).key == ("kernel", "sgpa")
    results["run"]["recipe"]["methods"] = ["ts", "sgpa"]
    assert judge(results).key == ("kernel", "ts")


def test_results_without_single_rows_are_not_judged():
    results = user_results(scores(0.9, 0.3), scores(0.6, 0.9))
    assert judge(results | {"curves": []}) is None


def test_intervals_that_do_not_cover_are_named():
    results = user_results(scores(0.9, 0.3), scores(0.6, 0.9))
    for curve, inside in zip(results["curves"], (0.5, 0.9), strict=True):
        rows = np.arange(ROWS) < inside * ROWS
        curve["data"] = {"mae": [0.1] * ROWS, "nll": [0.3] * ROWS, "coverage_90": rows.astype(int).tolist()}
        curve["data"]["coverage_50"] = (np.arange(ROWS) < 20).astype(int).tolist()
    (problem,) = judge(results).problems
    assert problem == "The 90% intervals are too narrow: they cover 50.0% of 40 test values."


def test_the_page_shows_judgement_confusion_and_cases(tmp_path):
    results = user_results(scores(0.4, 0.9), scores(0.8, 0.4, 1), scores(0.35, 1.1, 2))
    picture = {"picture": "data:image/png;base64,AAAA", "caption": "cat/<1>.png"}
    case = {"row": 0, "answer": "cat", "truth": "dog", "probability": 0.97}
    data = {"classes": ["cat", "dog"], "confusion": [[12, 8], [16, 4]], "surest_wrong": [case | picture],
            "least_sure": [case | {"text": "a <b>bold</b> film"}]}  # fmt: skip
    results["curves"].append(results["curves"][0] | {"kind": "cases", "data": data})
    page = write_report(results, tmp_path, pdf=False)
    html, markdown = page.read_text("utf-8"), (tmp_path / "report.md").read_text("utf-8")
    warning = '<p class="warning"><strong>Warning</strong> Logistic regression (pixels) is better than SGPA'
    assert warning in html
    assert "± one standard error over 40 test rows" in html
    assert "<td><strong>12</strong></td><td>8</td>" in html
    assert 'src="data:image/png;base64,AAAA" alt="cat/&lt;1&gt;.png"' in html
    assert "a &lt;b&gt;bold&lt;/b&gt; film" in html
    assert "Simple baselines" in html
    assert "no error bars" not in html
    assert "**Surest wrong answers.**" in markdown


def with_classes(results, rows, confusion):
    """The results with training rows of every class, and the confusion of the test rows."""
    facts = {"fingerprint": "a1", "train": 90, "validation": 9, "test": ROWS, "test_rows_in_train": 0}
    data = {"classes": list(rows), "confusion": confusion, "surest_wrong": [], "least_sure": []}
    for kind, content in (("cases", data), ("data", facts | {"class_rows": rows})):
        results["curves"].append(results["curves"][0] | {"kind": kind, "data": content})
    return results


def test_a_class_of_few_rows_is_named():
    results = user_results(scores(0.9, 0.3), scores(0.6, 0.9))
    problems = judge(with_classes(results, {"cat": 60, "frog": 2}, [[36, 3], [1, 0]])).problems
    assert problems == (
        "Few rows to learn from: frog (2 training rows, none of 1 tested answered right). Add rows, or leave "
        "the class out: trust says little about it.",
    )
    results = user_results(scores(0.9, 0.3), scores(0.6, 0.9))
    (untested,) = judge(with_classes(results, {"cat": 60, "frog": 3}, [[36, 4], [0, 0]])).problems
    assert untested.startswith("Few rows to learn from: frog (3 training rows, none tested). Add rows")
    results = user_results(scores(0.9, 0.3), scores(0.6, 0.9))
    many = judge(with_classes(results, {f"c{i}": i + 1 for i in range(8)}, None)).problems
    assert many == (
        "Few rows to learn from: c0 (1 training row), c1 (2 training rows), c2 (3 training rows), c3 (4 "
        "training rows), c4 (5 training rows) and 3 more. Add rows, or leave these classes out: trust says "
        "little about them.",
    )


def test_a_class_that_is_answered_far_worse_than_the_others_is_named():
    results = user_results(scores(0.9, 0.3), scores(0.6, 0.9))
    rows = {"cat": 60, "dog": 60, "frog": 30}
    assert judge(with_classes(results, rows, [[18, 2, 0], [2, 14, 0], [2, 0, 2]])).problems == ()  # of 4 rows
    results = user_results(scores(0.9, 0.3), scores(0.6, 0.9))
    problems = judge(with_classes(results, rows, [[14, 2, 0], [2, 14, 0], [6, 0, 2]])).problems
    assert problems == (
        "Test rows that are answered right: 2 of 8 of frog, 87.50\N{NO-BREAK SPACE}% of the others.",
    )


def test_test_rows_among_the_training_rows_come_first(tmp_path):
    results = user_results(scores(0.5, 0.7), scores(0.4, 0.8, 1), scores(0.5, 0.72, 2))
    results = with_classes(results, {"cat": 60, "dog": 60}, [[18, 2], [2, 18]])
    results["curves"][-1]["data"]["test_rows_in_train"] = 40
    leak, worthless = judge(results).problems
    assert leak == (
        "40 of 40 test rows occur in the training data, input for input. Their answers say little about new "
        "inputs; remove the copies."
    )
    assert "is no better than a constant prediction" in worthless
    assert write_report(results, tmp_path, pdf=False).read_text("utf-8").count("input for input") == 1


def test_wrong_answers_among_the_trusted_are_put_beside_what_was_asked_for():
    results = user_results(scores(0.9, 0.3), scores(0.6, 0.9))
    shares = {"trusted_wrong": 0.5, "trusted_ood": 0.04, "trusted_right": 0.9, "trusted_error": 0.2}
    for name, value in shares.items():
        results["records"].append(
            results["records"][0] | {"evaluation": "trust", "metric": name, "value": value}
        )
    limits = {"max_error": 0.1, "bound": 0.3, "rows": 40, "doubt": ""}
    results["curves"].append(results["curves"][0] | {"kind": "trust", "data": limits})
    summary = judge(results).summary.replace("\N{NO-BREAK SPACE}", " ")
    assert summary.endswith(
        "50 % of the wrong answers and 96 % of unfamiliar inputs that were made for this test are marked as "
        "not trusted; 90 % of the right ones are trusted. Real inputs of other kinds are refused less often "
        "than those that were made. Of the trusted answers 20 % are wrong (asked for: at most 10.0 %)."
    )
