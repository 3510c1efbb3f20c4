"""Keeps what a run came to under docs/results: the report as Markdown, figures, numbers and facts.

Usage: python -m benchmarks.keep runs/demo docs/results/digits
       python -m benchmarks.keep runs/cola docs/results/cola --title CoLA --note "Two languages." --untimed
"""

import argparse
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sgpa.files import write_json
from sgpa.report import merge, write_report
from sgpa.runner.saved import saved_results


def keep(results: dict[str, Any], place: Path) -> None:
    """Replace what is kept there."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    with TemporaryDirectory() as made:
        run = write_report(results, Path(made)).parent
        shutil.copy(run / "results.csv", place / "results.csv")
        page = (run / "report.md").read_text(encoding="utf-8")
        (place / "README.md").write_text(page, encoding="utf-8")
        for name in sorted(set(re.findall(r"figures/[\w.-]+\.svg", page))):
            (place / name).parent.mkdir(exist_ok=True)
            shutil.copy(run / name, place / name)
    write_json(place / "run.json", results["run"])


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
    found = [saved_results(run) for run in args.runs]
    results = merge(found, args.names) if len(found) > 1 else found[0]
    named = {"title": args.title, "summary": args.note}
    results |= {name: text for name, text in named.items() if text is not None}
    run = results["run"] if args.command is None else results["run"] | {"command": args.command}
    results["run"] = {name: fact for name, fact in run.items() if name != "timings" or not args.untimed}
    keep(results, args.place)


if __name__ == "__main__":
    main()
