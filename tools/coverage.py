"""Write docs/results/coverage.md: every published value beside ours, or the reason why ours is missing.

Usage: python -m tools.coverage   (after docs/results/results.csv has changed)
"""

import csv
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from sgpa.experiments.timing import BASE, DROPOUT, SGPA
from sgpa.report.names import METRICS, Metric, is_ensemble, method_name, task_name, task_of
from sgpa.report.paper import DOUBTFUL, FORMS, TWINS, paper_shift
from sgpa.report.tables import Cell, summarise
from tools.readme_tables import RESULTS, records

PAGE = RESULTS / "coverage.md"
BETTER, LEVEL, WORSE, MISSING = "better", "level", "worse", "missing"
TIMED = "on other hardware"  # seconds, which say nothing about the method
VERDICTS = (BETTER, LEVEL, WORSE, TIMED, MISSING)
ERRORS = 2.0  # standard errors of the difference within which two values are level
OURS = {printed: own for own, printed in TWINS.items()}  # printed metric: ours, where named differently
NO_AUGMENTATION = ("", "none")
HEAD = """# Coverage of the paper's results

Every value that the paper prints, and ours beside it. `python -m tools.coverage` writes this page from the
paper's tables and [results.csv](results.csv). Our values are means over seeds. Two values are *level* if
they differ by at most two standard errors of their difference, as far as errors are known (one seed has
none, and the paper prints none for ensembles), or if they are equal as printed. A question mark follows a
printed value that cannot be correct. The printed MCE is compared with the all-class MCE, and AUPR with the
value at the paper's share of OOD inputs. Times are those of [speed](speed.md), of an epoch of 450 steps or of
one prediction with ten samples, and of other hardware than the paper's: they have no verdict.
"""

EPOCH = 450  # steps of a training on CIFAR-10
TIMES = {  # our time of a published one, by table: part of speed.json, its name there, column, factor
    ("time-training", "mle"): ("inducing", BASE, "step", EPOCH),
    ("time-training", "sgpa"): ("inducing", SGPA, "step", EPOCH),
    ("time-inference", "mcd"): ("model", DROPOUT, "predict", 1),
    ("time-inference", "sgpa"): ("model", SGPA, "predict", 1),
}

Place = tuple[str, ...]  # data set, augmentation, evaluation, shift, attention, method


@dataclass(frozen=True)
class Comparison:
    """A published value, ours if there is one, and the verdict on it."""

    row: Mapping[str, str]  # of the paper's table
    ours: Cell | None
    verdict: str

    @property
    def reason(self) -> str:
        """Why ours is missing; empty where it is not."""
        return reason(self.row) if self.ours is None else ""


def published_rows() -> list[dict[str, str]]:
    """The rows of the paper's tables, one value each."""
    text = (files("sgpa") / "report" / "paper_results.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def our_cells(file: Path) -> dict[Place, dict[str, Cell]]:
    """Mean and error over seeds by place and metric."""
    values: dict[Place, dict[str, dict[str, float]]] = {}
    for r in records(file):
        place = _place(r, paper_shift(r["shift"]), r["attention"], r["method"])
        seeds = values.setdefault(place, {}).setdefault(r["metric"], {})
        seed = f"{r['run']} {r['seed']}"
        assert seed not in seeds, f"two values of {place} {r['metric']}"
        if math.isfinite(r["value"]):
            seeds[seed] = r["value"]
    return {
        place: {name: summarise(seeds) for name, seeds in of.items() if seeds} for place, of in values.items()
    }


def our_time(row: Mapping[str, str], file: Path = RESULTS / "speed.json") -> Cell | None:
    """Our time of a published one; MC dropout has no global keys, so that one time stands beside two."""
    if row["dataset"] != "cifar10" or (row["table"], row["method"]) not in TIMES:
        return None
    part, name, column, factor = TIMES[row["table"], row["method"]]
    keys = None if row["method"] == "mcd" else int(row["shift"].removeprefix("kg:"))
    for timed in json.loads(file.read_text(encoding="utf-8")):
        if (timed["part"], timed["name"]) == (part, name) and keys in (None, timed["num_global"]):
            return Cell(factor * timed[column], None, 1)
    return None


def compare(rows: Iterable[Mapping[str, str]], ours: Mapping[Place, Mapping[str, Cell]]) -> list[Comparison]:
    """Every published value with ours and a verdict."""
    comparisons = []
    for row in rows:
        if row["evaluation"] == "time":
            seconds = our_time(row)
            comparisons.append(Comparison(row, seconds, MISSING if seconds is None else TIMED))
            continue
        of = ours.get(place_of(row), {})
        cell = of.get(OURS.get(row["metric"], ""), of.get(row["metric"]))
        comparisons.append(Comparison(row, cell, MISSING if cell is None else verdict(row, cell)))
    return comparisons


def place_of(row: Mapping[str, str]) -> Place:
    """Where our value of a published one is."""
    if row["method"] in FORMS:
        return _place({**row, "evaluation": "in-distribution"}, "", "kernel", FORMS[row["method"]])
    return _place(row, row["shift"], row["attention"], row["method"])


def _place(row: Mapping[str, str], shift: str, attention: str, method: str) -> Place:
    augmentation = "" if row["augmentation"] in NO_AUGMENTATION else row["augmentation"]
    return row["dataset"], augmentation, row["evaluation"], shift, attention, method


def verdict(row: Mapping[str, str], ours: Cell) -> str:
    """Whether ours is better than, level with or worse than the published value."""
    shape, printed = shape_of(row["metric"]), float(row["mean"])
    bare = not row["error"] or is_ensemble(row["method"])
    error = math.hypot(ours.error or 0.0, 0.0 if bare else float(row["error"]))
    gain = (ours.mean - printed) * (1 if shape.higher_is_better else -1)
    if abs(gain) <= ERRORS * error or shape.text(ours.mean) == shape.text(printed):
        return LEVEL
    return BETTER if gain > 0 else WORSE


def shape_of(metric: str) -> Metric:
    """How a published metric is written, and its better direction."""
    if metric.startswith("rank-"):
        return replace(METRICS["rank"], name=f"Average rank, {METRICS[metric.removeprefix('rank-')].name}")
    return Metric("Seconds", "s", False) if metric == "seconds" else METRICS[metric]


def reason(row: Mapping[str, str]) -> str:
    """Why a published value has none of ours beside it."""
    softmax = row["attention"] == "sdp"
    who = "softmax attention" if softmax else method_name(row["method"])
    where = f"{who} on {title(row)} not run yet"
    reasons = (
        (row["evaluation"] == "rank", "ranks need all methods on CIFAR-100"),
        (row["evaluation"] == "time", "not timed; other times are on [their page](speed.md)"),
        (row["dataset"] == "cifar100", where),
        (softmax, "softmax attention not run yet"),
        (row["augmentation"] == "three-augment", where),
        (is_ensemble(row["method"]), "ensemble not run yet"),
    )
    return next((text for applies, text in reasons if applies), "not run yet")


def count_line(comparisons: Sequence[Comparison]) -> str:
    """The number of values of every verdict, of all methods and of SGPA, and by the seeds of ours."""

    def counts(some: Sequence[Comparison]) -> str:
        of = Counter(each.verdict for each in some)
        return ", ".join(f"{of[name]:,} {name}" for name in VERDICTS if of[name] or name != TIMED)

    beside = sum(each.ours is not None for each in comparisons)
    sgpa = [c for c in comparisons if "sgpa" in c.row["method"]]
    compared = [c for c in sgpa if c.verdict not in (MISSING, TIMED)]
    good = sum(c.verdict in (BETTER, LEVEL) for c in compared)
    share = f"{100 * good / len(compared):.0f} %" if compared else "none"
    better = [c.ours.n for c in comparisons if c.ours is not None and c.verdict == BETTER]
    seeds = Counter(better)
    rest = ", ".join(f"{seeds[n]:,} on {n}" for n in sorted(seeds) if n > 1)
    return (
        f"Of {len(comparisons):,} published values {beside:,} stand beside ours: {counts(comparisons)}. Of "
        f"the {len(sgpa):,} values of SGPA and its ensemble: {counts(sgpa)}; {share} of those compared are "
        f"better or level. Of the {len(better):,} better ones {seeds[1]:,} rest on one seed of ours"
        f"{', ' if rest else ''}{rest}."
    )


def page(comparisons: Sequence[Comparison]) -> str:
    """The page as Markdown: counts, then one table for each of the paper's."""
    lines = [HEAD, count_line(comparisons), "", *summary(comparisons), *missing_summary(comparisons)]
    for table in dict.fromkeys(c.row["table"] for c in comparisons):
        lines += [f"## {table}", "", "| | metric | paper | ours | seeds | |", "|---|---|--:|--:|--:|---|"]
        lines += [line(c) for c in comparisons if c.row["table"] == table]
        lines.append("")
    return "\n".join(lines)


def summary(comparisons: Sequence[Comparison]) -> list[str]:
    """Counts by data set and augmentation."""
    lines = [f"| | {' | '.join(VERDICTS)} |", "|---|" + "--:|" * len(VERDICTS)]
    tasks = dict.fromkeys(title(c.row) for c in comparisons)
    for task in tasks:
        of = Counter(c.verdict for c in comparisons if title(c.row) == task)
        lines.append(f"| {task} | {' | '.join(str(of[name]) for name in VERDICTS)} |")
    return [*lines, ""]


def missing_summary(comparisons: Sequence[Comparison]) -> list[str]:
    """How many values are missing for which reason."""
    of = Counter(c.reason for c in comparisons if c.reason)
    return [
        "| missing because | values |",
        "|---|--:|",
        *(f"| {why} | {n} |" for why, n in of.most_common()),
        "",
    ]


def title(row: Mapping[str, str]) -> str:
    """The data set of a row, as tables name it."""
    return " + ".join(task_name(task_of(name, row["augmentation"])) for name in row["dataset"].split("+"))


def line(c: Comparison) -> str:
    """One published value as a line of a table."""
    row, shape = c.row, shape_of(c.row["metric"])
    method = method_name(FORMS.get(row["method"], row["method"]))
    attention = ", softmax" if row["attention"] == "sdp" else ""
    what = f"{method}{attention}" + (f", {row['shift']}" if row["shift"] else "")
    doubt = "?" if (row["dataset"], row["method"], row["metric"]) in DOUBTFUL else ""
    paper = shape.text(float(row["mean"])) + doubt
    if c.ours is None:
        return f"| {what} | {shape.name} | {paper} | | | {MISSING}: {c.reason} |"
    error = "" if c.ours.error is None else f" ± {shape.text(c.ours.error)}"
    return (
        f"| {what} | {shape.name} | {paper} | {shape.text(c.ours.mean)}{error} | {c.ours.n} | {c.verdict} |"
    )


def main() -> None:
    """Write the page and print the counts."""
    comparisons = compare(published_rows(), our_cells(RESULTS / "results.csv"))
    PAGE.write_text(page(comparisons), encoding="utf-8")
    print(count_line(comparisons))


if __name__ == "__main__":
    main()
