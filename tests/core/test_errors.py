"""Errors of other libraries are shortened to one line."""

import pytest

from sgpa.core.errors import first_line


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
