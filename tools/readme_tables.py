"""Write the result table of the README from the archived runs; make the tables of docs/results.

Usage: python -m tools.readme_tables   (after a `results.csv` in docs/results has changed)
"""

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sgpa.report import aggregate, headline
from sgpa.report.names import labels, metric
from sgpa.report.paper import published_cells
from sgpa.report.tables import Cell, Column, Published, tasks

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "docs" / "results"


def records(*files: Path) -> list[dict[str, Any]]:
    """The records of `results.csv` files, with numbers parsed."""
    all_rows: list[dict[str, Any]] = []
    for file in files:
        with file.open(encoding="utf-8") as opened:
            rows = [row for row in csv.DictReader(opened) if row["value"]]
        all_rows += [row | {"value": float(row["value"]), "seed": int(row["seed"])} for row in rows]
    return all_rows


def beside_paper(*files: Path) -> str:
    """A table with one line per method: mean ± standard error over seeds, in brackets the paper's value.

    Of shifted data it has the NLL at the strongest shift, and MCC where the paper has it. The last column is
    the all-class MCE, which the paper's MCE is compared with.
    """
    rows = records(*files)
    (task,) = tasks(rows)
    table = headline(aggregate(rows))
    names, paper = labels(table.rows), published_cells(table.cells, task)
    printed = {column for _, column in paper}
    columns = [c for c in table.columns if (c in printed if c.metric == "mcc" else _in_short_table(c))]
    last = Column("in-distribution", "", "mce_all_classes", "Clean test set")
    columns += [last] if any(column == last for _, column in table.cells) else []
    lines = [f"| | seeds | {' | '.join(map(_heading, columns))} |", "|---|--:|" + "--:|" * len(columns)]
    for row in table.rows:
        cells = [table.cells.get((row, c)) for c in columns]
        shown = [_both(cell, paper.get((row, c)), c) for cell, c in zip(cells, columns, strict=True)]
        seeds = max(cell.n for cell in cells if cell is not None)
        lines.append(f"| {names[row]} | {seeds} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _in_short_table(column: Column) -> bool:
    """Whether every short table has the column."""
    return column.evaluation != "robustness" or column.metric == "nll"


def _heading(column: Column) -> str:
    """The metric and, unless it is the clean test set, the data."""
    return column.heading if column.group.startswith("Clean") else f"{column.group}: {column.heading}"


def _both(ours: Cell | None, paper: Published | None, column: Column) -> str:
    if ours is None:
        return ""
    shape = metric(column.metric)
    value = _with_error(shape.text(ours.mean), ours, column)
    return value if paper is None else f"{value} ({shape.text(paper.mean)}{'?' if paper.doubtful else ''})"


def _with_error(value: str, cell: Cell, column: Column) -> str:
    return value if cell.error is None else f"{value} ± {metric(column.metric).text(cell.error)}"


SUMMARY = {  # rows of the README's table: archived run -> name and error metric
    "digits-methods": ("digits, 300 images", "accuracy"),
    "cifar10": ("CIFAR-10", "accuracy"),
    "cifar10-augmented": ("CIFAR-10 with 3-Augment", "accuracy"),
    "cifar100": ("CIFAR-100", "accuracy"),
    "cifar100-augmented": ("CIFAR-100 with 3-Augment", "accuracy"),
    "imdb": ("IMDB reviews", "accuracy"),
    "cola": ("CoLA sentences", "mcc"),
    "zinc": ("ZINC molecules", "mae"),
}
METHODS = {"mle": "MLE", "ts": "temperature scaling", "mcd": "MC dropout", "sgpa": "SGPA"}


def summary() -> str:
    """One line per data set, one column per method: error / NLL / ECE, and those of the paper's SGPA."""
    lines = [
        f"| | {' | '.join(METHODS.values())} | the paper's SGPA |",
        "|---|" + "--:|" * (len(METHODS) + 1),
    ]
    for run, (name, error) in SUMMARY.items():
        rows = records(RESULTS / run / "results.csv")
        (task,) = tasks(rows)
        cells = aggregate(rows)
        columns = [Column("in-distribution", "", m, "Clean test set") for m in (error, "nll", "ece")]
        ours = [_joined({c: cells.get((("kernel", method), c)) for c in columns}) for method in METHODS]
        printed = published_cells(cells, task)
        paper = _joined({c: printed.get((("kernel", "sgpa"), c)) for c in columns})
        lines.append(f"| [{name}](docs/results/{run}) | {' | '.join([*ours, paper])} |")
    return "\n".join(lines)


def _joined(values: Mapping[Column, Cell | Published | None]) -> str:
    """The values that exist, separated by slashes."""
    return " / ".join(metric(c.metric).text(value.mean) for c, value in values.items() if value is not None)


def current_table(text: str) -> str:
    """The text between the markers of the table."""
    match = re.search(r"<!-- summary:begin -->\n(.*?)<!-- summary:end -->", text, flags=re.S)
    assert match is not None, "README.md has no markers for the table"
    return match.group(1).rstrip("\n")


def main() -> None:
    """Update the table of the README."""
    text = README.read_text(encoding="utf-8")
    begin, end = "<!-- summary:begin -->\n", "<!-- summary:end -->"
    before, after = text.split(begin)[0], text.split(end)[1]
    README.write_text(f"{before}{begin}{summary()}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
