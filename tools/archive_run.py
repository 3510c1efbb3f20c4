"""Archive the results of runs under docs/results: report as Markdown, figures, numbers, curves, provenance.

An archived folder can be given as a run too, to add other runs to it.

Usage: python -m tools.archive_run runs/demo docs/results/digits
       python -m tools.archive_run runs/cola docs/results/cola --title CoLA --note "Two languages." --untimed
       python -m tools.archive_run docs/results/cola runs/more docs/results/cola
       python -m tools.archive_run docs/results/cifar10 runs/cifar10 docs/results/cifar10 --replace sgpa sgpae
"""

import argparse
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sgpa.core.files import read_json, write_json, write_text
from sgpa.experiments.runner.collect import saved_results
from sgpa.report import merge, write_report
from tools.readme_tables import records

CURVES = "curves.json"  # the data of the figures


def archive(results: dict[str, Any], folder: Path) -> None:
    """Write the results to a folder; an earlier archive there is replaced."""
    with TemporaryDirectory() as temporary:
        run = write_report(results, Path(temporary), pdf=False).parent
        shutil.rmtree(folder, ignore_errors=True)  # only after the report was written
        folder.mkdir(parents=True)
        shutil.copy(run / "results.csv", folder / "results.csv")
        page = (run / "report.md").read_text(encoding="utf-8")
        (folder / "README.md").write_text(page, encoding="utf-8")
        for name in sorted(set(re.findall(r"figures/[\w.-]+\.svg", page))):
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(run / name, folder / name)
    write_json(folder / "run.json", results["run"])
    curves = {name: results[name] for name in ("title", "summary", "curves")}
    write_text(folder / CURVES, json.dumps(curves, ensure_ascii=False) + "\n")


def read_archive(folder: Path) -> dict[str, Any]:
    """The results that `archive` wrote; the first archives have no curves."""
    old = {"title": "", "summary": "", "curves": []}
    curves = read_json(folder / CURVES, dict) if (folder / CURVES).exists() else old
    run = read_json(folder / "run.json", dict)
    return {"schema": 1, **curves, "records": records(folder / "results.csv"), "run": run}


def read_results(path: Path) -> dict[str, Any]:
    """The results of a run folder or of an archived folder."""
    archived = (path / "run.json").exists() and not (path / "cells").exists()
    return read_archive(path) if archived else saved_results(path)


def without(results: dict[str, Any], methods: Sequence[str]) -> dict[str, Any]:
    """The results without those of some methods: `mle`, or `kernel-mle` for one attention alone."""

    def kept(ones: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [o for o in ones if not {o["method"], f"{o['attention']}-{o['method']}"} & set(methods)]

    rest: dict[str, Any] = {name: kept(results[name]) for name in ("records", "curves")}
    run = results["run"]
    return results | rest | {"run": run | {"timings": kept(run.get("timings", []))}}


def main() -> None:
    """Read, merge and archive the runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--names", nargs="*", default=(), help="labels for runs of one method with different settings"
    )
    parser.add_argument(
        "--replace",
        nargs="*",
        default=(),
        help="methods to leave out of the first run, such as sgpa or kernel-mle",
    )
    parser.add_argument("--title", help="title of the page")
    parser.add_argument("--note", help="first paragraph of the page")
    parser.add_argument("--command", nargs="*", help="the command(s) that reproduce the run")
    parser.add_argument("--untimed", action="store_true", help="leave out timings")
    args = parser.parse_args()
    each = [read_results(run) for run in args.runs]
    each[0] = without(each[0], args.replace)
    results = merge(each, args.names) if len(each) > 1 else each[0]
    named = {"title": args.title, "summary": args.note}
    results |= {name: text for name, text in named.items() if text is not None}
    run = results["run"]
    if args.command:
        run |= {"command": args.command[0] if len(args.command) == 1 else args.command}
    results["run"] = {name: fact for name, fact in run.items() if name != "timings" or not args.untimed}
    archive(results, args.folder)


if __name__ == "__main__":
    main()
