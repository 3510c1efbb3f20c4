"""Puts the tables of a finished demo into the README: what it prints is what the run came to.

Usage: python -m benchmarks.readme   (after `docs/results/digits*/results.csv` were renewed)
"""

import csv
import re
from pathlib import Path
from typing import Any

from sgpa.report import aggregate, headline
from sgpa.report.names import labels, metric
from sgpa.report.tables import Column, Table

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
SHOWN = ("accuracy", "nll", "ece", "auroc")


def records(file: Path) -> list[dict[str, Any]]:
    """The numbers of a run."""
    with file.open(encoding="utf-8") as opened:
        rows = csv.DictReader(opened)
        return [
            row | {"value": float(row["value"]), "seed": int(row["seed"])} for row in rows if row["value"]
        ]


def two_methods(file: Path) -> str:
    """A line for every metric, a column for each method."""
    table = headline(aggregate(records(file)))
    names = labels(table.rows)
    lines = [f"| test | metric | {' | '.join(names.values())} |", "|---|---|" + "--:|" * len(table.rows)]
    for column in table.columns:
        cells = " | ".join(_cell(table, row, column) for row in table.rows)
        lines.append(f"| {column.group} | {column.heading} | {cells} |")
    return "\n".join(lines)


def all_methods(file: Path) -> str:
    """A line for every method: clean metrics, NLL under the strongest shifts, detection."""
    table = headline(aggregate(records(file)))
    columns = compared(table)
    heads = [heading(c) for c in columns]
    names = labels(table.rows)
    lines = [f"| method | {' | '.join(heads)} |", "|---|" + "--:|" * len(columns)]
    for row in table.rows:
        lines.append(f"| {names[row]} | {' | '.join(_cell(table, row, c) for c in columns)} |")
    return "\n".join(lines)


def compared(table: Table) -> list[Column]:
    """The columns of a line for every method: under shift the NLL alone."""
    return [c for c in table.columns if c.evaluation != "robustness" or c.metric == "nll"]


def heading(column: Column) -> str:
    """What is measured, and on what if not on clean data."""
    return column.heading if column.group.startswith("Clean") else f"{column.group}: {column.heading}"


def _cell(table: Table, row: Any, column: Any) -> str:
    cell, shape = table.cells[row, column], metric(column.metric)
    value = shape.text(cell.mean)
    value = f"**{value}**" if row in table.best(column) else value
    return value if cell.error is None else f"{value} ± {shape.text(cell.error)}"


TABLES = {
    "digits": (two_methods, ROOT / "docs" / "results" / "digits" / "results.csv"),
    "methods": (all_methods, ROOT / "docs" / "results" / "digits-methods" / "results.csv"),
}


def between(text: str, name: str) -> str:
    """What the README has between the marks of a table."""
    found = re.search(rf"<!-- {name}:begin -->\n(.*?)<!-- {name}:end -->", text, flags=re.S)
    assert found is not None
    return found.group(1).rstrip("\n")


def main() -> None:
    """Write the tables."""
    text = README.read_text(encoding="utf-8")
    for name, (make, file) in TABLES.items():
        old = f"<!-- {name}:begin -->\n{between(text, name)}"
        new = f"<!-- {name}:begin -->\n{make(file)}"
        text = text.replace(old.rstrip("\n") + "\n", new + "\n")
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
