"""The README's code runs, and its table shows the archived results."""

import re

import pytest
from tools.readme_tables import current_table, summary
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
    layer = next(block for block in BLOCKS if "MultiheadSgpa" in block)
    lines = [line for line in layer.splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) <= 10


def test_table_shows_the_archived_results():
    assert current_table(README) == summary()


def test_readme_is_at_most_a_screen_and_a_half():
    assert len(README.splitlines()) <= 120


def test_results_index_is_up_to_date():
    assert runs()
    assert (RESULTS / "results.csv").read_text(encoding="utf-8") == all_numbers()
    assert (RESULTS / "README.md").read_text(encoding="utf-8") == page()
