"""Counts of numerical repairs in this process; nothing is counted while a graph is compiled or captured."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

JITTER_RAISED = "jitter_raised"  # matrices that needed more than the smallest jitter
FLOAT64_PASSES = "float64_passes"  # passes of a layer for which float32 was too coarse
STEPS_NEED_FLOAT64 = "steps_need_float64"  # those of them whose error would spoil a training step
VARIANCE_CLAMPED = "variance_clamped"  # variances that were negative beyond rounding and became 0
KL_BELOW_ZERO = "kl_below_zero"  # passes of a layer whose KL was negative by rounding

_counts: Counter[str] = Counter()


def count(event: str, times: int = 1) -> None:
    """Add to the count of an event."""
    _counts[event] += times


@contextmanager
def counting() -> Iterator[dict[str, int]]:
    """A mapping that holds, after the block, how often each event happened inside; none where none did.

    >>> with counting() as counted:
    ...     count(JITTER_RAISED, 2)
    >>> counted
    {'jitter_raised': 2}
    """
    before, counted = _counts.copy(), dict[str, int]()
    try:
        yield counted
    finally:
        counted.update({name: n - before[name] for name, n in _counts.items() if n > before[name]})
