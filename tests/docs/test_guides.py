"""The Python code of every guide runs from top to bottom."""

import re

import pytest

from support.paths import ROOT

GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
BLOCKS = {"audit": 1, "layer": 4, "pretrained-features": 2, "your-transformer": 6}  # code blocks of the page
SHAPES = {"pretrained-features": (5, 2), "your-transformer": (32, 2)}  # of the probabilities of `answer`
OWN_TESTS = {"extend.md", "corruptions.md"}  # run by another test; needs images that the page does not make


def code_of(page):
    return re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), flags=re.S)


def test_guides_have_code():
    assert sum(bool(code_of(page)) for page in GUIDES) >= 4


@pytest.mark.parametrize(
    "page", [page for page in GUIDES if page.name not in OWN_TESTS], ids=lambda p: p.stem
)
def test_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks, names = code_of(page), {"__name__": page.stem}
    assert len(blocks) == BLOCKS.get(page.stem, len(blocks))
    exec(compile("\n".join(blocks), str(page), "exec"), names)
    if page.stem in SHAPES:
        assert names["answer"].probabilities.shape == SHAPES[page.stem]
