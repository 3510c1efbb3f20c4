"""Keeps what runs came to under docs/results: the report as Markdown, figures, numbers, curves and facts.

What is kept already is a run too, so that others can be added to it.
Usage: python -m tools.archive_run runs/demo docs/results/digits
       python -m tools.archive_run runs/cola docs/results/cola --title CoLA --note "Two languages." --untimed
       python -m tools.archive_run docs/results/cola runs/more docs/results/cola
"""

import argparse
import json
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sgpa.core.files import read_json, write_json, write_text
from sgpa.experiments.runner.collect import saved_results
from sgpa.report import merge, write_report
from tools.readme_tables import records

CURVES = "curves.json"  # what figures are drawn from


def keep(results: dict[str, Any], place: Path) -> None:
    """Replace what is kept there."""
    with TemporaryDirectory() as made:
        run = write_report(results, Path(made)).parent
        shutil.rmtree(place, ignore_errors=True)  # now that there is something to put there
        place.mkdir(parents=True)
        shutil.copy(run / "results.csv", place / "results.csv")
        page = (run / "report.md").read_text(encoding="utf-8")
        (place / "README.md").write_text(page, encoding="utf-8")
        for name in sorted(set(re.findall(r"figures/[\w.-]+\.svg", page))):
            (place / name).parent.mkdir(exist_ok=True)
            shutil.copy(run / name, place / name)
    write_json(place / "run.json", results["run"])
    drawn = {name: results[name] for name in ("title", "summary", "curves")}
    write_text(place / CURVES, json.dumps(drawn, ensure_ascii=False) + "\n")


def kept(place: Path) -> dict[str, Any]:
    """The results that `keep` was given."""
    drawn, run = read_json(place / CURVES), read_json(place / "run.json")
    return {"schema": 1, **drawn, "records": records(place / "results.csv"), "run": run}


def found(path: Path) -> dict[str, Any]:
    """The results of a run, wherever they are."""
    return kept(path) if (path / CURVES).exists() else saved_results(path)


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("place", type=Path)
    parser.add_argument("--names", nargs="*", default=(), help="of runs of one method with other settings")
    parser.add_argument("--title", help="what the page is called")
    parser.add_argument("--note", help="what its reader should know first")
    parser.add_argument("--command", nargs="*", help="what to type for the same, where it was typed in parts")
    parser.add_argument("--untimed", action="store_true", help="leave out times that mean nothing")
    args = parser.parse_args()
    each = [found(run) for run in args.runs]
    results = merge(each, args.names) if len(each) > 1 else each[0]
    named = {"title": args.title, "summary": args.note}
    results |= {name: text for name, text in named.items() if text is not None}
    run = results["run"]
    if args.command:
        run |= {"command": args.command[0] if len(args.command) == 1 else args.command}
    results["run"] = {name: fact for name, fact in run.items() if name != "timings" or not args.untimed}
    keep(results, args.place)


if __name__ == "__main__":
    main()
