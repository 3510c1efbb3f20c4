"""Links and file names in the documentation exist, and its wording avoids a list of idioms."""

import re
from pathlib import Path

import pytest

from support.paths import ROOT

FOLDERS = ("benchmarks", "docs", "examples", "src", "tests", "tools")
PAGES = sorted([*ROOT.glob("*.md"), *(file for name in FOLDERS for file in (ROOT / name).rglob("*.md"))])
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]*)")
IDIOMS = ("goes on", "go on from", "hangs together", "knows its place", "know their place")


def text_of(page: Path) -> str:
    """The page without code blocks."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)


def broken_links(page: Path) -> list[str]:
    """Relative links to files that do not exist, and file names in backticks that do not exist."""
    text = text_of(page)
    links = [link.split("#")[0] for link in LINK.findall(text) if "://" not in link and link[0] != "#"]
    broken = [link for link in links if not (page.parent / link).exists()]
    return broken + [name for name in NAMED.findall(text) if not (ROOT / name).exists()]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def test_pages_are_collected():
    names = {name_of(page) for page in PAGES}
    assert {"README.md", "CONTRIBUTING.md", "docs/lab/README.md", "docs/reference/rooms.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_file_names_exist(page):
    assert not broken_links(page)


def test_missing_files_are_reported(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("[a](b.md), [c](page.md#top), [d](https://e.f), `src/none.py`, `docs/lab`\n")
    assert broken_links(page) == ["b.md", "src/none.py"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_wording(page):
    text = " ".join(text_of(page).lower().split())
    assert not [idiom for idiom in IDIOMS if idiom in text]
