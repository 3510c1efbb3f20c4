"""What the validation NLL of a training says about its length."""

from collections.abc import Sequence

SHARE = 0.2  # of a training, its end
FALL = 0.03  # nats: less is not worth more steps


def still_falls(nll: Sequence[float]) -> float | None:
    """By how many nats the validation NLL fell in the last fifth of a training that ended at its best.

    Args:
        nll: One value a validation, at equal distances.

    Returns:
        The fall, or None: the best validation was not the last, the fall is not worth more steps, or there
        are fewer than five validations.

    >>> still_falls([2.0, 1.8, 1.7, 1.6, 1.5])
    0.1
    """
    end = max(1, round(SHARE * len(nll)))
    if len(nll) < 1 / SHARE or nll[-1] > min(nll):
        return None
    fall = nll[-1 - end] - nll[-1]
    return round(fall, 6) if fall > FALL else None
