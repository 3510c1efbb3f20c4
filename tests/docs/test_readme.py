"""The README's Python runs as printed."""

import re

import pytest
from tools.readme_tables import MAKE, between, made
from tools.results_index import RESULTS, all_numbers, page, runs

from support.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
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


@pytest.mark.parametrize("name", MAKE)
def test_the_tables_show_the_numbers_of_the_runs(name):
    assert between(README, name) == made(name)


def test_all_kept_numbers_are_in_one_file_and_on_one_page():
    assert runs()
    assert (RESULTS / "results.csv").read_text(encoding="utf-8") == all_numbers()
    assert (RESULTS / "README.md").read_text(encoding="utf-8") == page()
