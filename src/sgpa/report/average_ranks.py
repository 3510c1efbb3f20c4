"""Average ranks of methods over tasks, the summary of a table of detection results."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy.stats import rankdata

from sgpa.core.errors import InputError


def average_ranks(
    records: Iterable[Mapping[str, Any]], metric: str, *, higher_is_better: bool = True
) -> dict[str, float]:
    """Mean rank (1 = best, ties share) of every method over the tasks of `records`.

    A task is a (dataset, shift) pair; seeds of a method are averaged first. Every method must have every
    task, or ranks of different methods would mean different things.

    >>> rows = [{"dataset": "a", "shift": "b", "metric": "auroc", "method": m, "value": v}
    ...         for m, v in (("mle", 0.7), ("sgpa", 0.8))]
    >>> average_ranks(rows, "auroc")
    {'mle': 2.0, 'sgpa': 1.0}
    """
    values: dict[str, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if record["metric"] == metric:
            values[record["method"]][record["dataset"], record["shift"]].append(float(record["value"]))
    tasks = sorted({task for found in values.values() for task in found})
    for method, found in values.items():
        if missing := [task for task in tasks if task not in found]:
            raise InputError(
                f"{method} has no {metric} for {missing[0]}; ranks need every task of every method"
            )
    if not tasks:
        raise InputError(f"no record has the metric {metric}")
    table = np.array(
        [[np.mean(found[task]) for task in tasks] for found in values.values()]
    )  # [methods, tasks]
    ranks = rankdata(-table if higher_is_better else table, axis=0)
    return dict(zip(values, ranks.mean(1).tolist(), strict=True))
