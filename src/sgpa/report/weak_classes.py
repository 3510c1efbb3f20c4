"""Classes that a user's model was given too few rows of, or that it answers clearly worse than the others."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sgpa.report.names import listed, metric

FEW = 20  # training rows, below which a class is named
SHOWN = 5  # classes that a sentence names
CLEAR = 2.0  # standard errors from which a difference is clear
FAR = 0.5  # of the share of right answers in the other classes

Tested = tuple[int, int]  # test rows of a class that are answered right, and all of them


def weak_classes(curves: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences about classes, from the curves of one model; none where every class is fine.

    >>> rows = {"kind": "data", "data": {"class_rows": {"cat": 90, "frog": 2}}}
    >>> weak_classes([rows])[0].partition(":")[2]
    ' frog (2 training rows). Add rows, or leave the class out: trust says little about it.'
    """
    kinds = {curve.get("kind"): curve["data"] for curve in reversed(curves)}  # of the first seed
    tested = _tested(kinds.get("cases") or {})
    few = [(name, n) for name, n in (kinds.get("data") or {}).get("class_rows", {}).items() if n < FEW]
    return [*_few(few, tested), *_low(tested, {name for name, _ in few})]


def _tested(cases: Mapping[str, Any]) -> dict[str, Tested]:
    """By class; empty where no confusion table was kept, as for many classes."""
    table = cases.get("confusion") or []
    return {name: (table[i][i], sum(table[i])) for i, name in enumerate(cases.get("classes") or []) if table}


def _few(few: Sequence[tuple[str, int]], tested: Mapping[str, Tested]) -> list[str]:
    if not few:
        return []
    parts = []
    for name, rows in sorted(few, key=lambda pair: pair[1])[:SHOWN]:
        right, of = tested.get(name, (0, 0))
        answered = f", {right or 'none'} of {of} tested answered right" if of else ", none tested"
        answered = answered if tested else ""
        parts.append(f"{name} ({rows} training row{'s' if rows > 1 else ''}{answered})")
    more = [f"{len(few) - SHOWN} more"] if len(few) > SHOWN else []
    what = "the class" if len(few) == 1 else "these classes"
    return [
        f"Few rows to learn from: {listed([*parts, *more])}. Add rows, or leave {what} out: trust says "
        f"little about {'it' if len(few) == 1 else 'them'}."
    ]


def _low(tested: Mapping[str, Tested], named: set[str]) -> list[str]:
    """Classes whose share of right answers is clearly, and by far, below that of the others together."""
    right, rows = (sum(counts[i] for counts in tested.values()) for i in (0, 1))
    parts = []
    for name, (own, of) in tested.items():
        if name in named or not 0 < of < rows:
            continue
        others, share = (right - own) / (rows - of), own / of
        error = math.sqrt(others * (1 - others) / of + share * (1 - share) / of)
        if share < FAR * others and others - share > CLEAR * error:
            parts.append(
                f"{own or 'none'} of {of} of {name}, {metric('accuracy').spoken(others)} of the others"
            )
    return [f"Test rows that are answered right: {part}." for part in parts[:SHOWN]]
