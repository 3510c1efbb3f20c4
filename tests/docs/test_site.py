"""The documentation site: public names are documented, links work, nothing comes from other servers."""

import re
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest

import sgpa
from support.paths import ROOT

pytest.importorskip("mkdocs", reason="needs the extra `docs`")
pytestmark = pytest.mark.xdist_group("site")  # in one process: the tests share the pages
API = ROOT / "docs" / "reference" / "api"
LOADED = {"img": "src", "script": "src", "link": "href", "source": "src", "iframe": "src"}


class Links(HTMLParser):
    """Collect links, anchors and what the browser loads by itself."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors |= {attrs[name] for name in ("id", "name") if attrs.get(name)}
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        if tag in LOADED and attrs.get(LOADED[tag]):
            self.loaded.append(attrs[LOADED[tag]])


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Path -> links of every page of the site."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    site = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(site)))  # strict: a warning is an error
    return {page: Links(page.read_text(encoding="utf-8")) for page in site.rglob("*.html")}


def broken(pages):
    """Links to files or anchors that the site does not have."""
    wrong = []
    for page, content in pages.items():
        for link in [*content.links, *content.loaded]:
            if re.match(r"[a-z]+:", link) or page.name == "404.html":
                continue
            name, _, anchor = unquote(link).partition("#")
            target = (page.parent / name.partition("?")[0]).resolve() if name else page
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
                wrong.append(f"{page.name}: {link}")
    return wrong


@pytest.mark.slow
def test_links_lead_somewhere(pages):
    assert len(pages) > 40
    assert not broken(pages)


@pytest.mark.slow
def test_a_broken_link_is_noticed(tmp_path):
    page = tmp_path / "page.html"
    page.write_text('<a href="none.html">a</a><a href="#b">b</a><a id="c" href="#c">c</a>')
    assert broken({page: Links(page.read_text())}) == ["page.html: none.html", "page.html: #b"]


@pytest.mark.slow
def test_pages_load_nothing_from_other_servers(pages):
    outside = [f for content in pages.values() for f in content.loaded if re.match(r"(https?:)?//", f)]
    styles = [p for page in pages for p in page.parent.glob("*.css")]
    assert not outside
    assert not [p for p in styles if "url(http" in p.read_text(encoding="utf-8")]


@pytest.mark.slow
def test_the_search_works_from_the_file_system(pages):
    site = min((page.parent for page in pages), key=lambda folder: len(folder.parts))
    assert (site / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = ")
    index = site / "index.html"
    assert "iframe-worker.js" in pages[index].loaded  # browsers start no worker from the file system
    assert "window.Worker = window.IFrameWorker" in (site / "iframe-worker.js").read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_page_is_reachable_from_the_start(pages):
    by_path = {page.resolve(): content for page, content in pages.items()}
    start = next(
        page
        for page in by_path
        if page.name == "index.html" and page.parent == min(p.parent for p in by_path)
    )
    seen, waiting = {start}, [start]
    while waiting:
        page = waiting.pop()
        for link in by_path[page].links:
            target = (page.parent / unquote(link).partition("#")[0]).resolve()
            if target in by_path and target not in seen:
                seen.add(target)
                waiting.append(target)
    assert {p.name for p in by_path.keys() - seen} <= {"404.html"}


def test_every_public_name_is_on_one_page_of_the_reference():
    text = "".join(page.read_text(encoding="utf-8") for page in API.glob("*.md"))
    documented = re.findall(r"^::: sgpa\.[\w.]*\.(\w+)$", text, flags=re.M)
    assert sorted(documented) == sgpa.__all__
