"""Warnings about one task: collapsed layers, few answers, leaked rows, unlike comparisons; and remarks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sgpa.core.counters import FLOAT64_PASSES
from sgpa.evaluation.calibration import MCE_ANSWERS
from sgpa.report.figures.curves import Curve, history, numbers, select
from sgpa.report.names import CLEAN, Key, is_ensemble, key_order, labels, listed
from sgpa.report.sections.blocks import Material

COLLAPSED = 0.1  # nats: a layer whose last KL is below has a posterior that hardly differs from its prior

REPAIRS = {  # counts in the log of a training
    "jitter_raised": "the jitter of a Gram matrix was raised",
    "variance_clamped": "a negative variance was set to zero",
    "kl_below_zero": "the KL of a layer was negative by rounding",
}


def remarks(material: Material) -> list[str]:
    """Sentences about what was done and is no problem: layers that were computed in float64."""
    names = labels(key_order(row for row, _ in material.cells))
    sentences = []
    for key, curves in select(material.curves, "training").items():
        passes = sum(int((curve["data"].get("numerics") or {}).get(FLOAT64_PASSES, 0)) for curve in curves)
        if passes:
            what = (
                "one training pass of a layer was"
                if passes == 1
                else f"{passes:,} training passes of layers were"
            )
            sentences.append(
                f"{names.get(key, key[1])}: {what} computed in float64, because float32 was too inaccurate."
            )
    return sentences


def warnings(material: Material) -> list[str]:
    """One sentence per problem, none where there is none."""
    names = labels(key_order(row for row, _ in material.cells))
    trained = select(material.curves, "training")
    tested, data = select(material.curves, "reliability", ""), select(material.curves, "data")
    return [
        *_collapses(trained, names),
        *_repairs(trained, names),
        *_differences("Seeds", _seeds(material), names),
        *(
            _differences("Epochs of all training stages", _per_row(trained, _epochs), names)
            if material.judged is None  # a user's point model is the first stage of SGPA
            else []
        ),
        *_differences("Test inputs", _per_row(tested, _answers), names),
        *_differences("Training rows", _per_row(data, lambda curve: curve["data"]["train"]), names),
        *_differences("Data", _per_row(data, lambda curve: curve["data"]["fingerprint"]), names),
        *_splits(data, names),
        *(leaks(data) if material.judged is None else []),  # else the judgement begins with them
        *_small_bins(tested, names),
    ]


def _collapses(trained: Mapping[Key, Sequence[Curve]], names: Mapping[Key, str]) -> list[str]:
    """Methods with a layer whose KL ends near zero."""
    sentences = []
    for key, curves in trained.items():
        parts = [history(curves, name, layers=True) for name in ("kl_g", "kl_a")]
        last = [line.mean[-1] for line in parts if line is not None]
        total = np.nansum(last, axis=0) if last else np.array([])  # KL of every layer   [L]
        collapsed = [str(i + 1) for i, kl in enumerate(total) if kl < COLLAPSED]
        if collapsed and total.size and np.abs(_all_layers(curves)).max() > 0:
            layers = f"layer{'s' if len(collapsed) > 1 else ''} {listed(collapsed)}"
            sentences.append(
                f"{names.get(key, key[1])}: the KL of {layers} ends below {COLLAPSED} nats. The posterior "
                "has collapsed to the prior, and the uncertainty of the layer carries no information."
            )
    return sentences


def _splits(data: Mapping[Key, Sequence[Curve]], names: Mapping[Key, str]) -> list[str]:
    """Methods with other rows of the same data, for the same seeds."""
    sentences = []
    for part, what in (
        ("train_digest", "Contents of training rows"),
        ("test_digest", "Contents of test rows"),
    ):
        known = {key: [c for c in group if part in c["data"]] for key, group in data.items()}
        by_seed: dict[str, dict[Key, str]] = {}
        for key, group in known.items():
            for curve in group:
                by_seed.setdefault(str(curve.get("seed")), {})[key] = curve["data"][part]
        differences = [_differences(what, digests, names) for digests in by_seed.values()]
        sentences += next(filter(None, differences), [])
    return sentences


def leaks(data: Mapping[Key, Sequence[Curve]]) -> list[str]:
    """Test rows that occur among the training rows."""
    shared = [
        (curve["data"]["test_rows_in_train"], curve["data"]["test"])
        for group in data.values()
        for curve in group
    ]
    if not shared or (worst := max(shared))[0] == 0:
        return []
    return [
        f"{worst[0]} of {worst[1]} test rows occur in the training data, input for input. Their answers say "
        "little about new inputs; remove the copies."
    ]


def _small_bins(tested: Mapping[Key, Sequence[Curve]], names: Mapping[Key, str]) -> list[str]:
    """Methods whose maximum calibration error is that of a bin with few answers."""
    decided = []
    for key, curves in tested.items():
        for curve in curves:
            bins = curve["data"]
            count, confidence, accuracy = (numbers(bins[n]) for n in ("count", "confidence", "accuracy"))
            gap = np.where(count > 0, np.abs(confidence - accuracy), -1.0)
            if gap.size and 0 < count[int(np.nanargmax(gap))] < MCE_ANSWERS:
                decided.append(names.get(key, key[1]))
                break
    if not decided:
        return []
    return [
        f"MCE of {listed(decided)} is that of a bin of fewer than {MCE_ANSWERS} answers, which few wrong "
        f"answers decide. Read MCE of bins with at least {MCE_ANSWERS} answers instead."
    ]


def _repairs(trained: Mapping[Key, Sequence[Curve]], names: Mapping[Key, str]) -> list[str]:
    """Methods whose training needed numerical repairs."""
    sentences = []
    for key, curves in trained.items():
        counted = [curve["data"].get("numerics") or {} for curve in curves]
        totals = {what: sum(int(one.get(name, 0)) for one in counted) for name, what in REPAIRS.items()}
        if listing := [f"{what} {n} times" for what, n in totals.items() if n]:
            sentences.append(f"{names.get(key, key[1])}: in training {listed(listing)}.")
    return sentences


def _all_layers(curves: Sequence[Curve]) -> Any:
    """Every logged KL; all zeros for attention that has no posterior."""
    logged = [
        numbers(values).ravel()
        for curve in curves
        for name, values in (curve["data"].get("layers") or {}).items()
        if name in ("kl_g", "kl_a") and values
    ]
    return np.nan_to_num(np.concatenate(logged)) if logged else np.zeros(1)


def _seeds(material: Material) -> dict[Key, str]:
    """The seeds of every single model on the clean test set; an ensemble counts its members itself."""
    seeds: dict[Key, set[Any]] = {}
    for (row, column), cell in material.cells.items():
        if column.evaluation == CLEAN and not is_ensemble(row[1]):
            seeds.setdefault(row, set()).update(cell.by_seed)
    return {row: listed(sorted(map(str, own))) for row, own in seeds.items()}


def _epochs(curve: Curve) -> int:
    """Of all stages; the history itself is that of the last."""
    epochs = curve["data"].get("epoch") or curve["data"].get("nll") or [0]
    last = int(epochs[-1]) if curve["data"].get("epoch") else len(epochs)
    return last + int(curve["data"].get("earlier_epochs") or 0)


def _answers(curve: Curve) -> int:
    return int(sum(curve["data"]["count"]))


def _per_row(groups: Mapping[Key, Sequence[Curve]], number: Any) -> dict[Key, str]:
    """The numbers that the seeds of a row report, usually one."""
    return {
        key: listed([str(n) for n in sorted({number(curve) for curve in group})])
        for key, group in groups.items()
    }


def _differences(what: str, values: Mapping[Key, str], names: Mapping[Key, str]) -> list[str]:
    """A sentence where rows that are compared differ in something they should share."""
    rows: dict[str, list[str]] = {}
    for key, value in values.items():
        rows.setdefault(value, []).append(names.get(key, key[1]))
    if len(rows) < 2:
        return []
    return [f"{what} differ: " + "; ".join(f"{value} for {listed(who)}" for value, who in rows.items()) + "."]
