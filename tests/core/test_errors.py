"""What errors of others are cut down to."""

import pytest

from sgpa.core.errors import first_line


@pytest.mark.parametrize(
    ("said", "kept"),
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
def test_the_line_that_tells_is_kept(said, kept):
    assert first_line(ValueError(said)) == kept
