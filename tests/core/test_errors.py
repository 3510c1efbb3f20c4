"""Errors of other libraries are shortened to one line."""

import pytest

from sgpa.core.errors import InputError, first_line, out_of_memory


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("", "ValueError"),
        ("too large", "too large"),
        ("too large\nTraceback ...", "too large"),
        (
            "failed:\n\nTraceback ...\nOutOfResources: memory\n\nSet TORCH_LOGS=1\n",
            "failed: OutOfResources: memory",
        ),
        ("nothing follows:", "nothing follows:"),
    ],
)
def test_the_most_informative_line_is_kept(message, line):
    assert first_line(ValueError(message)) == line


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (MemoryError("Unable to allocate 43.7 TiB for an array with shape (2, 3)"), " for 43.7 TiB"),
        (
            RuntimeError("can't allocate memory: you tried to allocate 80 bytes. Error code 12"),
            " for 80 bytes",
        ),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has"), " for 2.00 GiB"),
        (MemoryError(), ""),
    ],
)
def test_memory_that_runs_out_is_recognised(error, asked):
    assert out_of_memory(error).startswith(f"not enough memory{asked}; use fewer samples")


def test_other_errors_are_not_taken_for_memory():
    assert out_of_memory(RuntimeError("shapes cannot be multiplied")) is None


def test_a_message_is_one_line_whatever_it_quotes():
    assert str(InputError("no file a\nb\x1b[31m")) == "no file a b\\x1b[31m"
    assert str(InputError("no file \udcff")) == "no file \\xff"
