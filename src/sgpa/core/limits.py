"""Limits of the numbers in configs: what float32 can hold, and sizes beyond which a number is a mistake."""

from sgpa.core.errors import Check

SMALLEST, LARGEST = 1e-9, 1e9  # of scales, temperatures and penalties: their squares fit into float32
WIDEST = 65_536  # widths and counts of a layer
NOVELTY_ROWS = 10  # held-out rows that novelty needs; with fewer no spread can be estimated


def is_scale(value: float, most: float = LARGEST) -> bool:
    """Whether a number is positive and float32 can hold its square."""
    return SMALLEST <= value <= most


def scale_check(name: str, value: float, most: float = LARGEST) -> Check:
    """`is_scale` for `check_fields`.

    >>> scale_check("ridge", 1e-320)
    ('ridge', 1e-320, False, 'positive, 1e-09 to 1e+09')
    """
    return name, value, is_scale(value, most), f"positive, {SMALLEST:g} to {most:g}"


def size_check(name: str, value: int, most: int = WIDEST, least: int = 1) -> Check:
    """A number of things that are made or repeated, for `check_fields`.

    >>> size_check("features", 2**70)[2:]
    (False, '1 to 65536')
    """
    return name, value, least <= value <= most, f"{least} to {most}"
