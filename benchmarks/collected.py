"""All kept numbers in one place: docs/results/results.csv, and a page with ours beside the paper's.

Usage: python -m benchmarks.collected   (after `benchmarks.keep` renewed a folder of docs/results)
"""

import csv
import io
import json
from pathlib import Path

from benchmarks.readme import ROOT, compared, heading, records
from sgpa.report import aggregate, headline
from sgpa.report.export import COLUMNS
from sgpa.report.names import corruption_type, labels, metric
from sgpa.report.paper import beside
from sgpa.report.tables import Cell, Column, Published, tasks

RESULTS = ROOT / "docs" / "results"
HEAD = """# Results

Every number here came out of a run of this code; each folder has the report, the recipe and the hardware,
and [results.csv](results.csv) all numbers, one a line, with seed and run (single types of corruption are in
their folder's own file). Mean over seeds ± one standard error; in brackets what the paper prints for the same
row. The command of a table makes it again; with `--methods` one row of it, with `--seeds 1` one seed.
"""


def runs() -> list[Path]:
    """The folders of kept runs."""
    return sorted(file.parent for file in RESULTS.glob("*/run.json"))


def all_numbers() -> str:
    """One line per number, with the run it is of; of corruptions the means over types."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*COLUMNS, "run"], lineterminator="\n")
    writer.writeheader()
    for run in runs():
        with (run / "results.csv").open(encoding="utf-8") as opened:
            rows = [row for row in csv.DictReader(opened) if not corruption_type(row["shift"])]
        writer.writerows(row | {"run": run.name} for row in rows)
    return text.getvalue()


def page() -> str:
    """What the runs came to."""
    return "\n".join([HEAD, *(section(run) for run in runs())])


def section(run: Path) -> str:
    """One run: its command, its facts, and a line for every method."""
    facts = json.loads((run / "run.json").read_text(encoding="utf-8"))
    found = records(run / "results.csv")
    (task,) = tasks(found)
    table = headline(aggregate(found))
    columns = [*compared(table), Column("in-distribution", "", "mce_all_classes", "Clean test set")]
    columns = [c for c in columns if any(place[1] == c for place in table.cells)]
    names, paper = labels(table.rows), beside(table.cells, task)
    lines = [f"| | seeds | {' | '.join(map(heading, columns))} |", "|---|--:|" + "--:|" * len(columns)]
    for row in table.rows:
        cells = [table.cells.get((row, c)) for c in columns]
        shown = [_cell(cell, paper.get((row, c)), c) for cell, c in zip(cells, columns, strict=True)]
        seeds = max(cell.n for cell in cells if cell is not None)
        lines.append(f"| {names[row]} | {seeds} | {' | '.join(shown)} |")
    about = f"`{facts['command']}`, commit {facts['commit']}, {facts['hardware']}, {facts['date'][:10]}."
    return "\n".join([f"## [{run.name}]({run.name})", "", about, "", *lines, ""])


def _cell(ours: Cell | None, paper: Published | None, column: Column) -> str:
    if ours is None:
        return ""
    shape = metric(column.metric)
    value = shape.text(ours.mean) + ("" if ours.error is None else f" ± {shape.text(ours.error)}")
    return value if paper is None else f"{value} ({shape.text(paper.mean)}{'?' if paper.doubtful else ''})"


def main() -> None:
    """Write both."""
    (RESULTS / "results.csv").write_text(all_numbers(), encoding="utf-8")
    (RESULTS / "README.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
