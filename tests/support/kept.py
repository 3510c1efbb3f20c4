"""Numbers in docs/results."""

import csv

from support.paths import ROOT


def kept(results, **wanted):
    with (ROOT / "docs" / "results" / results / "results.csv").open(encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file) if all(r[k] == v for k, v in wanted.items())]
    return {r["metric"]: float(r["value"]) for r in rows}
