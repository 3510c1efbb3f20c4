"""All kept numbers in one place: docs/results/results.csv, and a page with ours beside the paper's.

Usage: python -m tools.results_index   (after `tools.archive_run` renewed a folder of docs/results)
"""

import csv
import io
import json
from pathlib import Path

from sgpa.report.export import COLUMNS
from sgpa.report.names import corruption_type
from tools.readme_tables import RESULTS, beside_paper

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
    commits = " and ".join(_each(facts["commit"]))
    days = " and ".join(sorted({date[:10] for date in _each(facts["date"])}))
    typed = f"`{facts['command']}`" if isinstance(facts["command"], str) else "Commands on its page"
    about = f"{typed}, commit {commits}, {facts['hardware']}, {days}."
    return "\n".join([f"## [{run.name}]({run.name})", "", about, "", beside_paper(run / "results.csv"), ""])


def _each(fact: str | list[str]) -> list[str]:
    """What merged runs have one of each of, and a single run one."""
    return [fact] if isinstance(fact, str) else fact


def main() -> None:
    """Write both."""
    (RESULTS / "results.csv").write_text(all_numbers(), encoding="utf-8")
    (RESULTS / "README.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
