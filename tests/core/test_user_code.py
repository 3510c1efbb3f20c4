"""Errors of code outside of the package become one line, with their cause."""

import pytest
import torch
from torch.utils.data import DataLoader

import sgpa
from sgpa.core.errors import InputError, NumericalError
from sgpa.core.user_code import errors_of


def test_the_error_is_the_cause_of_one_line():
    with pytest.raises(InputError, match=r"^reading \(first\)$") as caught, errors_of("reading"):
        raise ValueError("first\nsecond")
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_exception_of_no_kind_is_one_line():
    with pytest.raises(InputError, match=r"^reading \(too short\)$"), errors_of("reading"):
        raise Exception("too short")  # as the package tokenizers does


def test_assertions_of_torch_are_one_line_too():
    layer = torch.nn.MultiheadAttention(4, 1)
    with (
        pytest.raises(InputError, match=r"^the layer fails \(query should be unbatched"),
        errors_of("the layer fails"),
    ):
        layer(*[torch.zeros(1, 1, 1, 4)] * 3)


@pytest.mark.parametrize(
    "error",
    [
        *(NumericalError("ours"), torch.OutOfMemoryError("full"), KeyboardInterrupt()),
        *(MemoryError(), FileNotFoundError(2, "no such file", "rows.csv")),
    ],
)
def test_our_errors_memory_and_the_system_are_passed_on(error):
    with pytest.raises(type(error)) as caught, errors_of("reading"):
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    "rows", [[(torch.zeros(1, 4, 4), None)] * 30, [(torch.zeros(3), 1), (torch.zeros(2), 1)]]
)
def test_a_data_loader_that_fails_is_one_line(rows):
    with pytest.raises(InputError, match=r"^fit: DataLoader cannot be read \(.*\)$"):
        sgpa.fit(DataLoader(rows, batch_size=2))


def test_a_batch_that_the_module_does_not_take():
    layer = sgpa.MultiheadSgpa(8, 2, batch_first=True, num_global=3)
    with pytest.raises(InputError, match=r"^prepare: MultiheadSgpa does not take this batch"):
        sgpa.prepare(layer, ())
