"""Keeps what a run came to under docs/results: the report as Markdown, figures, numbers and facts.

Usage: python -m benchmarks.keep runs/demo docs/results/digits
"""

import argparse
import re
import shutil
from pathlib import Path

from sgpa.files import write_json
from sgpa.runner.benchmark import read_results


def keep(run: Path, place: Path) -> None:
    """Replace what is kept there."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    shutil.copy(run / "results.csv", place / "results.csv")
    page = (run / "report.md").read_text(encoding="utf-8")
    (place / "README.md").write_text(page, encoding="utf-8")
    for name in sorted(set(re.findall(r"figures/[\w.-]+\.svg", page))):
        (place / name).parent.mkdir(exist_ok=True)
        shutil.copy(run / name, place / name)
    write_json(place / "run.json", read_results(run)["run"])


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("place", type=Path)
    args = parser.parse_args()
    keep(args.run, args.place)


if __name__ == "__main__":
    main()
