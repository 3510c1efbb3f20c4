"""Write docs/results/results.csv with all archived numbers, and docs/results/README.md with all tables.

Usage: python -m tools.results_index   (after `tools.archive_run` has changed a folder of docs/results)
"""

import csv
import io
import json
from pathlib import Path

from sgpa.report.export import COLUMNS
from sgpa.report.names import corruption_type
from tools.readme_tables import RESULTS, beside_paper

HEAD = """# Results

Every number on this page comes from a run of this code. Each folder has the report, the recipe and the
hardware of a run. [results.csv](results.csv) has all numbers, one per line, with seed and run; results for
single types of corruption are in the `results.csv` of a folder. Tables show the mean over seeds ± one
standard error, and in brackets the paper's value. The command that made a table is above it or on its page;
settings that were renamed since then are in the [changelog](../../CHANGELOG.md). `--methods` trains one row
and `--seeds 1` one seed: `sgpa benchmark digits --methods mle --seeds 1` trains one of the models in the
first row of the digits.

[What reproduces and what does not](reproduction.md) discusses the results, and [coverage](coverage.md) has
every value of the paper beside ours. [Speed](speed.md), [a full training](full-training.md), [prediction
without sampling](means.md) and [GPs attached to trained Transformers](posthoc) have their own pages.
"""


def runs() -> list[Path]:
    """The folders of archived runs."""
    return sorted(file.parent for file in RESULTS.glob("*/run.json"))


def all_numbers() -> str:
    """One line per number, with the name of the run; of corruptions the means over types."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*COLUMNS, "run"], lineterminator="\n")
    writer.writeheader()
    for run in runs():
        with (run / "results.csv").open(encoding="utf-8") as opened:
            rows = [row for row in csv.DictReader(opened) if not corruption_type(row["shift"])]
        writer.writerows(row | {"run": run.name} for row in rows)
    return text.getvalue()


def page() -> str:
    """The page as Markdown."""
    return "\n".join([HEAD, *(section(run) for run in runs())])


def section(run: Path) -> str:
    """One run: its command, its provenance, and a table of methods."""
    facts = json.loads((run / "run.json").read_text(encoding="utf-8"))
    commits = " and ".join(_each(facts["commit"]))
    days = " and ".join(sorted({date[:10] for date in _each(facts["date"])}))
    command = f"`{facts['command']}`" if isinstance(facts["command"], str) else "Commands are on its page"
    provenance = f"{command}, commit {commits}, {facts['hardware']}, {days}."
    return "\n".join(
        [f"## [{run.name}]({run.name})", "", provenance, "", beside_paper(run / "results.csv"), ""]
    )


def _each(fact: str | list[str]) -> list[str]:
    """A fact of a merged run is a list, that of a single run a string."""
    return [fact] if isinstance(fact, str) else fact


def main() -> None:
    """Write both files."""
    (RESULTS / "results.csv").write_text(all_numbers(), encoding="utf-8")
    (RESULTS / "README.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
