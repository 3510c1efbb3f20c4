"""What `fit` reads as classes and as values, and what it refuses to guess."""

import warnings

import numpy as np
import pytest
import torch

import sgpa
from sgpa.core.errors import InputError
from sgpa.data.arrays import as_tensor
from sgpa.training.fit_targets import as_targets, check_labels

PASS_FLOATS = "pass values as floats"


class Column:
    """A column of a table as pandas gives it: no sequence, but it becomes an array."""

    def __init__(self, values):
        self.values = np.array(values, dtype=object)

    def __array__(self, dtype=None, copy=None):
        return self.values if dtype is None else self.values.astype(dtype)


def images(n=40):
    return torch.randn(n, 1, 4, 4)


@pytest.mark.parametrize("kind", [list, tuple, np.array, Column])
def test_words_are_classes_whatever_holds_them(kind):
    y, classes = as_targets(kind(["dog", "cat", "dog"]))
    assert (y.tolist(), classes) == ([1, 0, 1], ("cat", "dog"))


@pytest.mark.parametrize("nothing", [None, float("nan"), " ", "nan"])
@pytest.mark.parametrize("kind", [list, Column])
def test_a_missing_word_is_named_by_its_row(nothing, kind):
    for words, row in ((["cat", "dog", nothing, nothing], 3), ([nothing, "dog"], 1)):
        with pytest.raises(InputError) as error:
            sgpa.fit(images(), kind(words))
        assert str(error.value) == (
            f"fit: targets have no label in row {row} ({nothing!r}); fill it in or leave the row out"
        )


def test_whole_numbers_as_floats_are_values_and_one_line_says_so(caplog):
    check_labels(torch.arange(40.0) % 3)
    assert caplog.messages == ["fit: targets are read as values; for classes pass integers or words"]
    caplog.clear()
    for values in (torch.arange(40.0) % 3 + 0.5, torch.arange(40.0), torch.arange(40) % 3):
        check_labels(values)
    assert caplog.messages == []


def test_prices_and_numbers_of_articles_are_no_classes():
    prices = np.arange(40) * 1000 + 100_000
    with pytest.raises(InputError) as error:
        sgpa.fit(images(), prices)
    assert str(error.value) == (
        f"fit: targets are 40 different whole numbers in 40 rows, too many to be classes; {PASS_FLOATS}"
    )
    with pytest.raises(InputError) as error:
        sgpa.fit(images(), np.array([5, 5001] * 20))
    assert str(error.value) == (
        "fit: targets have the label 5001, but only 2 different ones; number the classes 0 to 1, or "
        f"{PASS_FLOATS}"
    )
    check_labels(torch.arange(2000) % 1000)  # a thousand classes are


def test_labels_below_zero_are_told_what_to_become():
    with pytest.raises(InputError) as error:
        sgpa.fit(images(), np.array([-1, 1] * 20))
    assert str(error.value) == (
        "fit: targets have label -1 (allowed: 0 or more); number the classes from 0, as 0 and 1 for -1 and 1"
    )


def test_one_value_for_all_rows_teaches_nothing():
    with pytest.raises(InputError) as error:
        sgpa.fit(images(), np.full(40, 2.5))
    assert str(error.value) == (
        "fit: all 34 training rows have the target 2.5; there is nothing to learn from them"
    )


def test_arrays_that_torch_cannot_share_are_copied():
    fixed = np.arange(6.0)
    fixed.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert as_tensor(fixed, "inputs").tolist() == list(range(6))
        assert as_tensor(np.arange(6)[::-1], "inputs").tolist() == list(range(6))[::-1]
