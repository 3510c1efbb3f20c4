"""The README's Python runs as printed."""

import csv
import re
from pathlib import Path

import pytest

from sgpa.report import aggregate, headline

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "digits" / "results.csv"
README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.S)


def test_there_is_code_to_run():
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize("block", BLOCKS)
def test_the_code_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})


def test_the_layer_fits_in_ten_lines():
    layer = next(block for block in BLOCKS if "OrthogonalSgpa" in block)
    lines = [line for line in layer.splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) <= 10


def test_the_table_shows_the_numbers_of_the_run():
    with RESULTS.open(encoding="utf-8") as file:
        records = [
            row | {"value": float(row["value"]), "seed": int(row["seed"])} for row in csv.DictReader(file)
        ]
    cells = aggregate(records)
    table = headline(cells)
    printed = README.split("<!-- digits:begin -->")[1].split("<!-- digits:end -->")[0].replace("*", "")
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.strip().splitlines()[2:]]
    assert len(lines) == len(table.columns)
    for column, (group, heading, *values) in zip(table.columns, lines, strict=True):
        assert (group, heading) == (column.group, column.heading)
        for row, value in zip(table.rows, values, strict=True):
            mean, error = (float(part) for part in value.split("±"))
            scale = 100 if column.metric == "accuracy" else 1
            assert mean == pytest.approx(
                scale * cells[row, column].mean, abs=0.0051 if scale == 100 else 0.00051
            )
            assert error == pytest.approx(
                scale * cells[row, column].error, abs=0.0051 if scale == 100 else 0.00051
            )
