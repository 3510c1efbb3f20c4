"""How good the model of a user's run is, judged row by row against simple baselines."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sgpa.evaluation.curves import still_falls
from sgpa.report.figures.curves import select
from sgpa.report.names import CLEAN, TRUST, Key, is_baseline, labels, metric
from sgpa.report.sections.warnings import leaks
from sgpa.report.tables import Cells
from sgpa.report.weak_classes import weak_classes

Rows = Mapping[str, np.ndarray]  # metric -> the score of every test row
CLEAR = 2.0  # standard errors from which a difference is clear
RISE = 0.1  # of the best validation NLL: a rise by more is named
LEAST_RISE = 0.05  # nats
MOSTLY = 0.95  # share of equal answers that is a collapse
TRUSTED = {
    "trusted_wrong": "the wrong answers",
    "trusted_ood": "unfamiliar inputs that were made for this test",
    "trusted_right": "the right answers",
}
FEW = 30  # test rows, with fewer all numbers are imprecise


@dataclass(frozen=True)
class Judgement:
    """The judgement of one model: `summary` is a paragraph, `problems` are sentences shown in red."""

    key: Key
    summary: str
    problems: tuple[str, ...]


def judge(results: Mapping[str, Any]) -> Judgement | None:
    """The judgement of a run's model on its test rows; None where single rows were not kept.

    Of several methods it is the one that predicts, the first of the recipe.

    >>> judge(json.loads(Path("runs/photos/results.json").read_text())).problems  # doctest: +SKIP
    ()
    """
    rows = row_scores(results.get("curves") or [])
    models = [key for key in rows if not is_baseline(key[1])]
    if not models:
        return None
    key = _chosen(results, models)
    curves = [c for c in results["curves"] if (c["attention"] or "", c["method"]) == key]
    others = {k: v for k, v in rows.items() if is_baseline(k[1])}
    names = labels([key, *others])
    problems = [
        *leaks(select(curves, "data")),
        *_collapse(rows[key], others, names, curves),
        *weak_classes(curves),
        *_lost(key, rows[key], others, names),
        *_miscovered(rows[key]),
        *_rising(results["curves"], names | labels(models)),
        *_too_short(curves, names[key]),
    ]
    summary = _summary(key, rows[key], others, names)
    trusted = _trusted(key, results["records"], curves)
    return Judgement(key, " ".join(filter(None, (summary, trusted))), tuple(problems))


def row_scores(curves: Sequence[Mapping[str, Any]]) -> dict[Key, Rows]:
    """The scores of single rows, of the first seed of every method."""
    scores: dict[Key, Rows] = {}
    for curve in curves:
        if curve.get("kind") == "rows":
            key = (curve["attention"] or "", curve["method"])
            scores.setdefault(key, {name: np.asarray(v, float) for name, v in curve["data"].items()})
    return scores


def with_row_errors(cells: Cells, curves: Sequence[Mapping[str, Any]]) -> Cells:
    """Cells of one seed with the standard error over test rows, where the scores of single rows were kept."""
    rows = row_scores(curves)
    changed = dict(cells)
    for (key, column), cell in cells.items():
        scores = rows.get(key, {}).get(column.metric)
        if cell.n == 1 and column.evaluation == CLEAN and not column.shift and scores is not None:
            changed[key, column] = replace(cell, error=standard_error(scores))
    return changed


def standard_error(scores: np.ndarray) -> float | None:
    """Of the mean over rows; None for a single row.

    >>> round(standard_error(np.array([0, 1, 1, 1])), 2)
    0.25
    """
    return float(scores.std(ddof=1) / math.sqrt(len(scores))) if len(scores) > 1 else None


def count_rows(cells: Cells, curves: Sequence[Mapping[str, Any]]) -> int:
    """The number of test rows whose standard errors are shown; 0 where errors are those over seeds."""
    if any(cell.n > 1 for cell in cells.values()):
        return 0
    return max((len(next(iter(rows.values()))) for rows in row_scores(curves).values()), default=0)


def _chosen(results: Mapping[str, Any], models: Sequence[Key]) -> Key:
    methods = ((results.get("run") or {}).get("recipe") or {}).get("methods") or []
    for method in methods:
        for key in models:
            if key[1] == method:
                return key
    return models[0]


def _main(rows: Rows) -> str:
    return "accuracy" if "accuracy" in rows else "mae"


def _spoken(name: str, rows: Rows) -> str:
    return metric(name).spoken(float(rows[name].mean()), standard_error(rows[name]))


def _summary(key: Key, rows: Rows, others: Mapping[Key, Rows], names: Mapping[Key, str]) -> str:
    main = _main(rows)
    count = len(rows[main])
    what = metric(main).name if main == "mae" else "accuracy"
    sentences = [
        f"{names[key]} on {count} test rows: {what} {_spoken(main, rows)}, NLL {_spoken('nll', rows)}."
    ]
    if others:
        beside = [f"{names[k]} {_spoken(main, r)}, NLL {_spoken('nll', r)}" for k, r in others.items()]
        sentences.append(f"Beside it: {'; '.join(beside)}.")
        sentences.append(_standing(rows, others, names))
    if "coverage_90" in rows:
        both = " and ".join(
            f"the {level} % interval {_spoken(f'coverage_{level}', rows)}" for level in (50, 90)
        )
        sentences.append(f"Share of true values inside: {both}.")
    if count < FEW:
        sentences.append(f"With {count} test rows all numbers are imprecise.")
    return " ".join(filter(None, sentences))


def _trusted(key: Key, records: Sequence[Mapping[str, Any]], curves: Sequence[Mapping[str, Any]]) -> str:
    """How much of what should not be trusted is refused, and how much of what is right is trusted."""
    own = [r for r in records if r["evaluation"] == TRUST and (r["attention"] or "", r["method"]) == key]
    values = {name: [r["value"] for r in own if r["metric"] == name] for name in (*TRUSTED, "trusted_error")}
    if not any(values.values()):
        return ""

    def share(name: str, refused: bool) -> str:
        mean = float(np.mean(values[name]))
        return f"{1 - mean if refused else mean:.0%}".replace("%", "\N{NO-BREAK SPACE}%")

    caught = [
        f"{share(name, True)} of {TRUSTED[name]}"
        for name in TRUSTED
        if values[name] and name != "trusted_right"
    ]
    kept = (
        f"; {share('trusted_right', False)} of the right ones are trusted" if values["trusted_right"] else ""
    )
    sentences = [f"{' and '.join(caught)} are marked as not trusted{kept}."] if caught else []
    if values["trusted_ood"]:
        sentences.append("Real inputs of other kinds are refused less often than those that were made.")
    if values["trusted_error"]:
        limits = [curve["data"].get("max_error") for curve in curves if curve.get("kind") == "trust"]
        asked = "" if not limits or limits[0] is None else f" (asked for: at most {limits[0]:.1%})"
        asked = asked.replace("%", "\N{NO-BREAK SPACE}%")
        sentences.append(f"Of the trusted answers {share('trusted_error', False)} are wrong{asked}.")
    return " ".join(sentences)


def _standing(rows: Rows, others: Mapping[Key, Rows], names: Mapping[Key, str]) -> str:
    """Whether the model is better than the best baseline."""
    best = min(others, key=lambda k: others[k]["nll"].mean())
    parts = {name: _gain(rows[name], others[best][name], name) for name in (_main(rows), "nll")}
    better = [_word(name) for name, (gain, error) in parts.items() if gain > CLEAR * error]
    worse = [_word(name) for name, (gain, error) in parts.items() if gain < -error]
    if worse:
        return f"{names[best]} is better in {' and '.join(worse)} (by more than one standard error)."
    if better:
        return f"The model is clearly better than {names[best]} in {' and '.join(better)}."
    return f"No clear difference from {names[best]}."


def _word(name: str) -> str:
    return "accuracy" if name == "accuracy" else metric(name).name


def _gain(ours: np.ndarray, theirs: np.ndarray, name: str) -> tuple[float, float]:
    """How much better our scores are, and the standard error of the paired difference."""
    n = min(len(ours), len(theirs))
    difference = (ours[:n] - theirs[:n]) * (1 if metric(name).higher_is_better else -1)
    return float(difference.mean()), standard_error(difference) or 0.0


def _lost(key: Key, rows: Rows, others: Mapping[Key, Rows], names: Mapping[Key, str]) -> list[str]:
    """Baselines that are better by more than the standard error of the paired difference."""
    sentences = []
    for other, theirs in others.items():
        lost = []
        for name in (_main(rows), "nll"):
            gain, error = _gain(rows[name], theirs[name], name)
            if gain < 0 and -gain > error:
                shape = metric(name)
                values = f"{shape.spoken(theirs[name].mean())} against {shape.spoken(rows[name].mean())}"
                by = f"by {shape.text(-gain)} ± {shape.text(error)}"
                lost.append(f"{_word(name)} {values} ({by})")
        if lost:
            sentences.append(
                f"{names[other]} is better than {names[key]}: {' and '.join(lost)}, the same "
                f"{len(theirs['nll'])} test rows. Use it, or train with more rows or pretrained features."
            )
    return sentences


def _collapse(
    rows: Rows, others: Mapping[Key, Rows], names: Mapping[Key, str], curves: Sequence[Mapping[str, Any]]
) -> list[str]:
    """A model that gives one answer, or is no better than the constant baseline."""
    main = _main(rows)
    for curve in curves:
        table = np.asarray(curve["data"].get("confusion") or [[0]]) if curve.get("kind") == "cases" else None
        if table is not None and table.sum() and len(table) > 1:
            top = int(table.sum(0).argmax())
            if table.sum(0).max() >= MOSTLY * table.sum() > table.sum(1)[top]:
                share = metric("accuracy").spoken(table.sum(0).max() / table.sum())
                return [
                    f"The model has collapsed: {share} of its answers are “{curve['data']['classes'][top]}”."
                ]
    for key, theirs in others.items():
        if key[1].partition(":")[0] in ("majority", "mean"):
            gain, error = _gain(rows[main], theirs[main], main)
            if gain <= error:
                ours, constant = (metric(main).spoken(scores[main].mean()) for scores in (rows, theirs))
                word = f"{_word(main)} {ours}, {names[key].lower()} {constant}"
                return [f"The model is no better than a constant prediction: {word}."]
    return []


def _miscovered(rows: Rows) -> list[str]:
    """Intervals that cover clearly more or less than they should."""
    sentences = []
    for level in (0.5, 0.9):
        inside = rows.get(f"coverage_{round(100 * level)}")
        if inside is None:
            continue
        error = math.sqrt(level * (1 - level) / len(inside))
        if abs(inside.mean() - level) > CLEAR * error:
            word = "narrow" if inside.mean() < level else "wide"
            sentences.append(
                f"The {level:.0%} intervals are too {word}: they cover {inside.mean():.1%} of {len(inside)} "
                "test values."
            )
    return sentences


def _rising(curves: Sequence[Mapping[str, Any]], names: Mapping[Key, str]) -> list[str]:
    """Trainings whose validation NLL rose after its minimum, and second stages worse than the first."""
    sentences = []
    for curve in curves:
        if curve.get("kind") != "training":
            continue
        name = names.get((curve["attention"] or "", curve["method"]), curve["method"])
        data = curve["data"]
        values = [v for v in data.get("validation") or [] if v is not None]
        first = [v for v in data.get("earlier_validation") or [] if v is not None]
        if not values:
            continue
        best, last = min(values), values[-1]
        if first and best > min(first):
            sentences.append(
                f"The second stage of {name} did not improve on its point model: validation NLL "
                f"{min(first):.3f} before, {best:.3f} at its best epoch."
            )
        if last - best > max(LEAST_RISE, RISE * abs(best)):
            sentences.append(
                f"The validation NLL of {name} rose from {best:.3f} to {last:.3f}: it overfits. The best "
                "epoch was kept; more steps do not help."
            )
    return sentences


def _too_short(curves: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    """The trainings of one model that ended while its validation NLL still fell."""
    sentences = []
    for curve in curves:
        values = curve["data"].get("validation") or [] if curve.get("kind") == "training" else []
        if (fall := still_falls([v for v in values if v is not None])) is not None:
            sentences.append(
                f"The validation NLL of {name} still fell at the end of its training, by {fall:.3f} in the "
                "last fifth: more steps may help."
            )
    return sentences
