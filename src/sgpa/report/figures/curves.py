"""From one curve per seed to one curve per method: counts are pooled, lines averaged."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sgpa.evaluation.metrics import Reliability
from sgpa.report.names import Key, key_order

Curve = Mapping[str, Any]
Floats = npt.NDArray[np.float64]


def numbers(values: Any) -> Floats:
    """Nested lists as float64, with NaN for null; ragged rows are filled up with NaN."""
    if isinstance(values, Sequence) and any(isinstance(v, Sequence) for v in values):
        rows = [numbers(v if v is not None else []) for v in values]
        width = max(len(row) for row in rows)
        return np.stack([np.pad(row, (0, width - len(row)), constant_values=np.nan) for row in rows])
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def select(curves: Iterable[Curve], kind: str, shift: str | None = None) -> dict[Key, list[Curve]]:
    """Curves of a kind (and shift, if given) by (attention, method), rows in their usual order."""
    groups: dict[Key, list[Curve]] = {}
    for curve in curves:
        if curve.get("kind") == kind and (shift is None or (curve.get("shift") or "") == shift):
            groups.setdefault((curve.get("attention") or "", curve["method"]), []).append(curve)
    return {key: groups[key] for key in key_order(groups)}


def pool_reliability(curves: Iterable[Curve]) -> Reliability:
    """Seeds pooled by their counts: sum_s n_s c_s / sum_s n_s, NaN where the bin is empty in every seed."""
    data = [curve["data"] for curve in curves]
    counts = np.stack([np.asarray(d["count"], dtype=np.int64) for d in data])  # [seeds, bins]
    total = counts.sum(0)
    divisor = np.where(total > 0, total, np.nan)

    def pooled(name: str) -> Floats:
        values = np.stack([numbers(d[name]) for d in data])
        return np.asarray(np.where(counts > 0, counts * np.nan_to_num(values), 0).sum(0) / divisor)

    return Reliability(numbers(data[0]["edges"]), pooled("confidence"), pooled("accuracy"), total)


@dataclass(frozen=True)
class Histogram:
    """Share of inputs per bin."""

    edges: Floats  # [B + 1]
    share: Floats  # [B], sums to 1


def pool_histogram(curves: Iterable[Curve]) -> Histogram:
    """Counts summed over seeds, as shares; seeds may differ in number of inputs, not in edges."""
    data = [curve["data"] for curve in curves]
    total = np.stack([numbers(d["count"]) for d in data]).sum(0)
    return Histogram(numbers(data[0]["edges"]), total / max(total.sum(), 1.0))


@dataclass(frozen=True)
class Line:
    """A quantity at each x: mean over the seeds that report it, and its standard error (0 for one seed)."""

    x: Floats  # [T]
    mean: Floats  # [T], or [T, L] per layer
    error: Floats


def mean_risk(curves: Iterable[Curve]) -> Line:
    """Risk-coverage curves averaged over seeds, at coverage 2 %, 4 %, ..., 100 %."""
    grid = np.linspace(0.02, 1.0, 50)
    data = [curve["data"] for curve in curves]
    stack = np.stack([np.interp(grid, numbers(d["coverage"]), numbers(d["risk"])) for d in data])
    error = stack.std(0, ddof=1) / np.sqrt(len(stack)) if len(stack) > 1 else np.zeros_like(grid)
    return Line(100 * grid, 100 * stack.mean(0), 100 * error)


def history(curves: Iterable[Curve], name: str, *, layers: bool = False) -> Line | None:
    """The history of `name` over seeds, cut to the shortest; None where no seed reports a number."""
    logged = []
    for curve in curves:
        data = curve["data"].get("layers") or {} if layers else curve["data"]
        raw = data.get(name)
        if raw:
            values = numbers(raw)
            if np.isfinite(values).any() and values.ndim == 1 + layers:
                epoch = curve["data"].get("epoch") or range(1, len(values) + 1)
                logged.append((numbers(list(epoch)), values))
    if not logged:
        return None
    length = min(min(len(epoch), len(values)) for epoch, values in logged)
    width = min(values.shape[-1] for _, values in logged)
    stack = np.stack([values[:length, :width] if layers else values[:length] for _, values in logged])
    n = np.isfinite(stack).sum(0)
    mean = np.where(n > 0, np.nan_to_num(stack).sum(0) / np.maximum(n, 1), np.nan)
    spread = np.where(np.isfinite(stack), stack - mean, 0.0)
    error = np.sqrt(np.square(spread).sum(0) / np.maximum(n - 1, 1) / np.maximum(n, 1))
    seen = n.reshape(length, -1).any(-1)  # epochs at which it was measured: only those make a line
    return Line(logged[0][0][:length][seen], mean[seen], error[seen])
