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
point model is stage 1 of the same training, a fifth of its steps; trained for all steps, a point model with
the same augmentation is level with SGPA on clean digits ([lab book](../../lab/images.md)).
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
        name: [column(measurements, name, i) for i in range(len(columns))] for name in methods
    }  # method -> one list of values over seeds for each column
    text = f"\n### {rows:,} rows\n\n| | seeds | {' | '.join(columns)} |\n|---|--:|{'--:|' * len(columns)}\n"
    for name, scores in values.items():
        cells = [summary(v, 0 if title == SECONDS else 3) for v, title in zip(scores, columns, strict=True)]
        text += f"| {name} | {len(scores[0])} | {' | '.join(cells)} |\n"
    if targets:
        wanted = [f"{targets[title]:g}" if title in targets else "" for title in columns]
        text += f"| *target* | | {' | '.join(wanted)} |\n"
    text += f"\n{in_words(values, columns, targets)}\n"
    commits = ", ".join(sorted({m["commit"] for m in measurements}))
    hardware = ", ".join(sorted({m["hardware"] for m in measurements}))
    dates = ", ".join(sorted({m["date"] for m in measurements}))
    return text + f"\nSeeds {', '.join(map(str, seeds))}; commit {commits}; {hardware}; {dates}.\n"


def column(measurements: list[dict[str, Any]], method: str, i: int) -> list[float]:
    """One score of a method for all seeds."""
    return [m["scores"][method][i] for m in measurements if method in m["scores"]]


def summary(values: list[float], digits: int) -> str:
    """Mean ± standard error.

    >>> summary([0.5, 0.7], 3), summary([0.5], 3)
    ('0.600 ± 0.100', '0.500')
    """
    mean = f"{statistics.mean(values):.{digits}f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {statistics.stdev(values) / len(values) ** 0.5:.{digits}f}"


def in_words(values: dict[str, list[list[float]]], columns: list[str], targets: dict[str, float]) -> str:
    """Which method is best in each score, and whether the first method is that and reaches its target."""
    first = next(iter(values))
    sentences = []
    for i, title in enumerate(columns):
        if title[-1:] not in "↑↓":
            continue
        sign = 1 if title.endswith("↑") else -1
        means = {name: statistics.mean(scores[i]) for name, scores in values.items()}
        best = max(means, key=lambda name: sign * means[name])
        others = {name: sign * mean for name, mean in means.items() if mean != means[first]}
        rival = max(others, key=lambda name: others[name]) if others else first
        if means[first] == means[best]:
            sentence = f"{title[:-2]}: `{first}` is best" + (f", before {rival}" if others else "")
        else:
            sentence = (
                f"{title[:-2]}: {best} is better than `{first}` by {abs(means[best] - means[first]):.3f}"
            )
        if title in targets:
            met = sign * means[first] >= sign * targets[title]
            sentence += f"; the target {targets[title]:g} is {'met' if met else '**not met**'}"
        sentences.append(f"- {sentence}.")
    return "\n".join(sentences)


if __name__ == "__main__":
    main()
