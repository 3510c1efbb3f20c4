"""The page about speed, made from invented measurements."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from benchmarks.naive_sgpa import NAME
from benchmarks.speed import page
from benchmarks.speed.record import FILE, Row, write
from benchmarks.speed.targets import TARGETS, Speed

from sgpa.experiments.timing import BASE, DROPOUT, SGPA, SOFTMAX

RUN = {
    "versions": {"sgpa": "0", "python": "3.11", "torch": "9.9"},
    "hardware": "an invented GPU",
    "threads": 2,
    "commit": "abc",
    "date": "2000-01-01 00:00 UTC",
}
FACTORS = {SOFTMAX: 0.8, BASE: 1.0, DROPOUT: 1.0, SGPA: 1.4, NAME: 6.0}


def invented_rows():
    """Every row a benchmark writes, with costs that follow simple laws."""
    rows = []
    for name, factor in FACTORS.items():
        row = Row(part="model", name=name, tokens=64, num_global=32, batch=100, predicted=200, run=RUN)
        step, predict = 1.7e-3 * factor, 3e-3 * factor
        rows.append(replace(row, step=step, predict=predict, peak=int(2**30 * factor)))
        rows.append(replace(row, part="cpu", predicted=20, step=0.5 * factor, predict=0.1 * factor))
        for T in (64, 512, 2048, 8192):
            cost = 5e-3 * factor * (1 + T / 512 * (name != SOFTMAX))
            long = replace(row, part="tokens", tokens=T, batch=16384 // T, predicted=None)
            if name == NAME and T == 8192:
                rows.append(replace(long, error="out of memory"))
            elif name != DROPOUT:
                rows.append(replace(long, step=cost, peak=int(2**28 * factor * (1 + T / 999))))
        for M in (8, 16, 32, 64) if name in (BASE, SGPA, NAME) else ():
            cost = 1.7e-3 * factor * (1 + (M / 32) * (name != BASE))
            rows.append(replace(row, part="inducing", num_global=M, step=cost, predict=cost, peak=2**30))
    return rows


def test_page_shows_targets_ratios_and_errors(tmp_path):
    write(tmp_path / FILE, invented_rows())
    page.main([str(tmp_path / FILE), "--out", str(tmp_path)])
    text = (tmp_path / "speed.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert "| step, SGPA / MLE with kernel attention | 1.40 | ≤ 1.5 | met |" in lines
    assert "| step, SGPA | 2.38 ms | ≤ 2.5 ms | met |" in lines
    assert "| step at T = 2,048, SGPA / MLE with softmax | 8.75 | ≤ 2.5 | **missed** |" in lines
    assert "| step on a CPU, SGPA / naive SGPA | 0.23 | ≤ 0.5 | met |" in lines
    assert "| SGPA | 2.38 | 1.40 | 4.20 | 1.40 | 1.40 | 54.0 | 86.3 |" in lines
    assert next(line for line in lines if line.startswith(f"| {NAME} | 33")).endswith("| out of memory |")
    assert "Measured on an invented GPU, torch 9.9, commit abc, 2000-01-01 00:00 UTC." in text
    assert max(len(line) for line in lines if not line.startswith("|")) <= 120
    assert all(line.count("|") == lines[i + 1].count("|") for i, line in enumerate(lines) if "|---" in line)
    assert ElementTree.parse(tmp_path / "speed.svg").getroot().tag.endswith("svg")


def test_page_of_an_empty_record(tmp_path):
    write(tmp_path / FILE, [])
    page.main([str(tmp_path / FILE), "--out", str(tmp_path)])
    text = (tmp_path / "speed.md").read_text(encoding="utf-8")
    assert text.count("not measured |") == len(TARGETS)
    assert text.count("Not measured.") == 4
    assert "speed.svg" not in text
    assert not (tmp_path / "speed.svg").exists()


@pytest.mark.parametrize("other", [RUN | {"date": "2000-01-02 00:00 UTC"}, RUN | {"hardware": "another"}])
def test_ratios_of_different_runs_are_not_formed(other):
    rows = [replace(row, run=other) if row.name == BASE else row for row in invented_rows()]
    assert Speed(tuple(rows)).ratio("model", SGPA, BASE, "step") is None
    assert Speed(tuple(rows)).ratio("model", SGPA, SOFTMAX, "step") == pytest.approx(1.75)
