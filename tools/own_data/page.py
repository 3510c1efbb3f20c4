"""Make `docs/results/own-data/README.md` from `measurements.jsonl` beside it.

python -m tools.own_data.page [docs/results/own-data]
"""

import importlib
import json
import statistics
import sys
from pathlib import Path
from typing import Any

FOLDER = Path("docs/results/own-data")
SECONDS = "CPU-s"
TIMED_ON = "x86_64 CPU"  # seconds of other hardware are left out
CLEAR = 2.0  # standard errors from which a difference is clear
Scores = dict[str, list[dict[int, float]]]  # method -> for each column the score of every seed
TITLES = {
    "digits": "Digits",
    "images": "Images",
    "house_numbers": "House numbers",
    "texts": "Texts",
    "molecules": "Molecules",
}
START = """# Your own data, few rows

Made by `python -m tools.own_data.page` from [measurements.jsonl](measurements.jsonl); each line of it by
`python -m tools.own_data KIND ROWS --seed S`. Numbers are means over seeds ± one standard error. A seed
decides the rows to learn from and the training. The methods of the library come first; `sgpa.fit` is what
a user gets, and the models below it are those it chose from. Test rows are read once, at the end. The
point model is stage 1 of the same training: a fifth of its steps for digits and texts, a third for
photographs and molecules, two thirds for many molecules. Trained for all steps, a point model with the same
augmentation is level with SGPA on clean digits ([lab book](../../lab/images.md)). CPU seconds are those of
measurements on x86_64 CPUs. Below a table the first model is compared with the best other one, in pairs over
seeds; a positive difference is in favour of the first model, and a difference of at most two standard errors
is not clear.
"""


def main() -> None:
    """Write the page."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    lines = (folder / "measurements.jsonl").read_text(encoding="utf-8").splitlines()
    text = page([json.loads(line) for line in lines if line.strip()])
    (folder / "README.md").write_text(text, encoding="utf-8")


def page(measurements: list[dict[str, Any]]) -> str:
    """The whole page."""
    text = START
    for kind, title in TITLES.items():
        of_kind = [m for m in measurements if m["kind"] == kind]
        if not of_kind:
            continue
        module = importlib.import_module(f"tools.own_data.{kind}")
        text += f"\n## {title}\n\n{module.RECIPE}\n"
        for rows in sorted({m["rows"] for m in of_kind}):
            targets = getattr(module, "TARGETS", {}).get(rows, {})
            first = getattr(module, "FIRST", "")
            text += section([m for m in of_kind if m["rows"] == rows], rows, targets, first)
    return text


def section(measurements: list[dict[str, Any]], rows: int, targets: dict[str, float], first: str = "") -> str:
    """The table of one number of rows, and what it says in words."""
    columns = [*measurements[0]["columns"], SECONDS]
    seeds = sorted({m["seed"] for m in measurements})
    methods = list(dict.fromkeys(name for m in measurements for name in m["scores"]))
    methods.sort(key=lambda name: name != first)
    if first and first not in methods:
        targets = {}  # they are those of the method that was not measured
    values = {
        name: [column(measurements, name, i, title == SECONDS) for i, title in enumerate(columns)]
        for name in methods
    }
    text = f"\n### {rows:,} rows\n\n| | seeds | {' | '.join(columns)} |\n|---|--:|{'--:|' * len(columns)}\n"
    for name, scores in values.items():
        cells = [
            summary(list(of_seed.values()), 0 if title == SECONDS else 3)
            for of_seed, title in zip(scores, columns, strict=True)
        ]
        text += f"| {name} | {len(scores[0])} | {' | '.join(cells)} |\n"
    if targets:
        wanted = [f"{targets[title]:g}" if title in targets else "" for title in columns]
        text += f"| *target* | | {' | '.join(wanted)} |\n"
    text += f"\n{in_words(values, columns, targets)}\n"
    commits = ", ".join(sorted({m["commit"] for m in measurements}))
    hardware = ", ".join(sorted({m["hardware"] for m in measurements}))
    dates = ", ".join(sorted({m["date"] for m in measurements}))
    return text + f"\nSeeds {', '.join(map(str, seeds))}; commit {commits}; {hardware}; {dates}.\n"


def column(
    measurements: list[dict[str, Any]], method: str, i: int, seconds: bool = False
) -> dict[int, float]:
    """One score of a method by seed; seconds only of the hardware that they can be compared on."""
    return {
        m["seed"]: m["scores"][method][i]
        for m in measurements
        if method in m["scores"] and (not seconds or m["hardware"].startswith(TIMED_ON))
    }


def summary(values: list[float], digits: int) -> str:
    """Mean ± standard error; empty without values.

    >>> summary([0.5, 0.7], 3), summary([0.5], 3), summary([], 0)
    ('0.600 ± 0.100', '0.500', '')
    """
    if not values:
        return ""
    mean = f"{statistics.mean(values):.{digits}f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {statistics.stdev(values) / len(values) ** 0.5:.{digits}f}"


def in_words(values: Scores, columns: list[str], targets: dict[str, float]) -> str:
    """Whether the first method is better than the best other one in each score, and reaches its target."""
    first, *others = values
    sentences = []
    for i, title in enumerate(columns):
        if title[-1:] not in "↑↓":
            continue
        sign = 1 if title.endswith("↑") else -1
        means = {name: statistics.mean(scores[i].values()) for name, scores in values.items()}
        sentence = f"{title[:-2]}: "
        rivals = [name for name in others if values[name][i] != values[first][i]]  # not the same model
        if rivals:
            best = max(rivals, key=lambda name: sign * means[name])
            sentence += beside(first, best, values[first][i], values[best][i], sign)
        else:
            sentence += f"`{first}` is compared with no other model"
        if title in targets:
            met = sign * means[first] >= sign * targets[title]
            sentence += f"; the target {targets[title]:g} is {'met' if met else '**not met**'}"
        sentences.append(f"- {sentence}.")
    return "\n".join(sentences)


def beside(first: str, rival: str, ours: dict[int, float], theirs: dict[int, float], sign: int) -> str:
    """The paired difference over the seeds of both, with its standard error; one seed cannot show chance.

    >>> beside("A", "B", {0: 0.8, 1: 0.9}, {0: 0.7, 1: 0.7}, 1)
    '`A` is better than B by 0.150 ± 0.050'
    >>> beside("A", "B", {0: 0.8, 1: 0.9}, {0: 0.9, 1: 0.7}, 1)
    'no clear difference to B (0.050 ± 0.150)'
    """
    gains = [sign * (ours[seed] - theirs[seed]) for seed in ours if seed in theirs]
    if not gains:
        return f"`{first}` and {rival} have no seed in common"
    gain = statistics.mean(gains)
    if len(gains) == 1:
        better, worse = (f"`{first}`", rival) if gain > 0 else (rival, f"`{first}`")
        return f"{better} is better than {worse} by {abs(gain):.3f} (one seed)"
    error = statistics.stdev(gains) / len(gains) ** 0.5
    if abs(gain) <= CLEAR * error:
        return f"no clear difference to {rival} ({gain:.3f} ± {error:.3f})"
    better, worse = (f"`{first}`", rival) if gain > 0 else (rival, f"`{first}`")
    return f"{better} is better than {worse} by {abs(gain):.3f} ± {error:.3f}"


if __name__ == "__main__":
    main()
