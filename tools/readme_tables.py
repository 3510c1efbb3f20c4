"""Write the result tables of the README from the archived runs.

Usage: python -m tools.readme_tables   (after a `results.csv` in docs/results has changed)
"""

import csv
import re
from pathlib import Path
from typing import Any

from sgpa.report import aggregate, headline
from sgpa.report.names import labels, metric
from sgpa.report.paper import beside
from sgpa.report.tables import Cell, Column, Published, Table, tasks

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


def two_methods(*files: Path) -> str:
    """A table with one line per metric and one column per method."""
    table = headline(aggregate(records(*files)))
    names = labels(table.rows)
    lines = [f"| test | metric | {' | '.join(names.values())} |", "|---|---|" + "--:|" * len(table.rows)]
    for column in table.columns:
        cells = " | ".join(_cell(table, row, column) for row in table.rows)
        lines.append(f"| {column.group} | {column.heading} | {cells} |")
    return "\n".join(lines)


def beside_paper(*files: Path) -> str:
    """A table with one line per method: mean ± standard error over seeds, in brackets the paper's value.

    Of shifted data it has the NLL at the strongest shift, and MCC where the paper has it. The last column is
    the all-class MCE, which the paper's MCE is compared with.
    """
    rows = records(*files)
    (task,) = tasks(rows)
    table = headline(aggregate(rows))
    names, paper = labels(table.rows), beside(table.cells, task)
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


def _cell(table: Table, row: Any, column: Column) -> str:
    cell = table.cells[row, column]
    value = metric(column.metric).text(cell.mean)
    return _with_error(f"**{value}**" if row in table.best(column) else value, cell, column)


def _with_error(value: str, cell: Cell, column: Column) -> str:
    return value if cell.error is None else f"{value} ± {metric(column.metric).text(cell.error)}"


TABLES = {
    "digits": two_methods,
    "cifar10": beside_paper,
    "cifar10-augmented": beside_paper,
    "imdb": beside_paper,
    "cola": beside_paper,
    "zinc": beside_paper,
    "forms": beside_paper,
}
RUNS = {"zinc": ("zinc", "zinc-mfvi")}  # tables of several archived runs


def make_table(name: str) -> str:
    """A table of the README, from the archived runs."""
    return TABLES[name](*(RESULTS / run / "results.csv" for run in RUNS.get(name, (name,))))


def current_table(text: str, name: str) -> str:
    """The text between the markers of a table."""
    match = re.search(rf"<!-- {name}:begin -->\n(.*?)<!-- {name}:end -->", text, flags=re.S)
    assert match is not None, f"no markers for the table {name!r}"
    return match.group(1).rstrip("\n")


def main() -> None:
    """Update all tables of the README."""
    text = README.read_text(encoding="utf-8")
    for name in TABLES:
        old = f"<!-- {name}:begin -->\n{current_table(text, name)}"
        new = f"<!-- {name}:begin -->\n{make_table(name)}"
        text = text.replace(old.rstrip("\n") + "\n", new + "\n")
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
