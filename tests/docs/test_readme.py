"""The README's code runs, and its tables show the archived results."""

import re

import pytest
from tools.readme_tables import TABLES, current_table, make_table
from tools.results_index import RESULTS, all_numbers, page, runs

from support.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.S)


def test_readme_has_code_blocks():
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize("block", BLOCKS)
def test_code_block_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})


def test_layer_example_has_at_most_ten_lines():
    layer = next(block for block in BLOCKS if "OrthogonalSgpa" in block)
    lines = [line for line in layer.splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) <= 10


@pytest.mark.parametrize("name", TABLES)
def test_tables_show_the_archived_results(name):
    assert current_table(README, name) == make_table(name)


def test_results_index_is_up_to_date():
    assert runs()
    assert (RESULTS / "results.csv").read_text(encoding="utf-8") == all_numbers()
    assert (RESULTS / "README.md").read_text(encoding="utf-8") == page()
