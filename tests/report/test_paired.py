"""The paired comparison against scipy, by hand, and in degenerate cases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from sgpa.report import aggregate, evaluation_table, paired_difference
from sgpa.report.names import is_ensemble
from sgpa.report.paired import against_mle, best_against_second, difference_table, legend, with_marks
from sgpa.report.tables import Column
from support.fake_results import record

NLL = Column("in-distribution", "", "nll")
values = st.floats(-10, 10).map(lambda x: round(x, 3))


@given(st.lists(st.tuples(values, values), min_size=3, max_size=12))
def test_equals_scipy(pairs: list[tuple[float, float]]) -> None:
    x, y = np.array(pairs).T
    difference = paired_difference(dict(enumerate(x)), dict(enumerate(y)))
    assert difference is not None
    d = x - y
    assert difference.n == len(pairs)
    assert difference.mean == pytest.approx(d.mean(), abs=1e-12)
    assert difference.error == pytest.approx(d.std(ddof=1) / np.sqrt(len(d)), abs=1e-12)
    if d.std() > 1e-9:
        assert difference.p == pytest.approx(ttest_rel(x, y).pvalue)


def test_equal_values_give_p_one() -> None:
    difference = paired_difference({0: 0.1, 1: 0.2, 2: 0.3}, {0: 0.1, 1: 0.2, 2: 0.3})
    assert difference is not None
    assert (difference.mean, difference.error, difference.p, difference.n) == (0.0, 0.0, 1.0, 3)
    assert not difference.significant


def test_a_constant_difference_has_no_p_value() -> None:
    difference = paired_difference({0: 1.1, 1: 1.2, 2: 1.3}, {0: 0.1, 1: 0.2, 2: 0.3})
    assert difference is not None
    assert difference.mean == pytest.approx(1.0)
    assert difference.error == pytest.approx(0.0, abs=1e-15)
    assert difference.p is None
    assert not difference.significant


def test_fewer_than_three_seeds_have_no_p_value() -> None:
    two = paired_difference({0: 1.0, 1: 2.0}, {0: 0.0, 1: 0.5})
    assert two is not None
    assert (two.mean, two.error, two.p, two.n) == (1.25, pytest.approx(0.25), None, 2)
    one = paired_difference({0: 1.0, 5: 9.0}, {0: 0.5, 1: 2.0})
    assert one is not None
    assert (one.mean, one.error, one.p, one.n) == (0.5, None, None, 1)
    assert paired_difference({0: 1.0}, {1: 1.0}) is None


def many(method: str, nlls: list[float], attention: str = "kernel") -> list[dict[str, object]]:
    return [record(method, "nll", v, seed, attention=attention) for seed, v in enumerate(nlls)]


RECORDS = [
    *many("mle", [1.00, 1.21, 1.39, 1.62]),
    *many("sgpa", [0.50, 0.70, 0.91, 1.10]),
    *many("mcd", [1.05, 1.15, 1.42, 1.59]),
    *many("mle", [2.0, 2.2, 2.4, 2.61], "sdp"),
    *many("de", [0.45]),
]


def test_marks_come_from_paired_differences() -> None:
    cells = aggregate(RECORDS)
    differences = against_mle(cells, NLL)
    assert set(differences) == {("kernel", "sgpa"), ("kernel", "mcd")}
    assert differences["kernel", "sgpa"].significant  # although the seeds spread more than the methods differ
    assert not differences["kernel", "mcd"].significant
    table = with_marks(evaluation_table(cells, "in-distribution"))
    assert set(table.marks) == {(("kernel", "sgpa"), NLL)}
    assert "paired t-test over the n = 4 shared seeds" in legend(table)
    assert "not corrected" in legend(table)
    assert legend(evaluation_table(aggregate(RECORDS[-1:]), "in-distribution")) == ""


def test_table_of_differences() -> None:
    table = difference_table(evaluation_table(aggregate(RECORDS), "in-distribution"))
    assert ("kernel", "mle") not in table.rows
    assert table.cells[("kernel", "sgpa"), NLL].mean == pytest.approx(-0.5025)
    assert table.best(NLL) == set()


def test_an_ensemble_is_not_paired_with_a_single_model() -> None:
    # seed 0 of an ensemble and seed 0 of MLE are different models
    cells = aggregate([*RECORDS, *many("sgpae", [0.05, 0.04, 0.06, 0.03])])
    assert ("kernel", "sgpae") not in against_mle(cells, NLL)
    tops = best_against_second(cells, [NLL])  # the best is an ensemble, the second is not
    assert ("sgpa", "mcd", 4) in [(top.best[1], top.second[1], top.difference.n) for top in tops]
    assert all(is_ensemble(top.best[1]) == is_ensemble(top.second[1]) for top in tops)


def test_two_ensembles_are_paired() -> None:
    records = [*many("de", [0.45, 0.44, 0.46]), *many("sgpae", [0.40, 0.41, 0.42])]
    (top,) = best_against_second(aggregate(records), [NLL])
    assert (top.best[1], top.second[1], top.difference.n) == ("sgpae", "de", 3)
