"""Hooks of the documentation site: pages link to files of the repository, which become pages of the site.

A link that leaves `docs/` points to a source file, a text file, a folder or another file. Sources are shown
as code, Markdown files as pages, folders as lists of their files; other files are copied.
"""

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
CODE = re.compile(r"```.*?```", flags=re.S)
LANGUAGES = {".py": "python", ".sh": "sh", ".toml": "toml", ".json": "json", ".yml": "yaml"}


def page_of(path: Path) -> str:
    """Where the site shows a file or folder of the repository, relative to the site's sources.

    >>> page_of(ROOT / "docs" / "README.md"), page_of(ROOT / "src" / "sgpa" / "gp")
    ('README.md', 'source/src/sgpa/gp/README.md')
    >>> page_of(ROOT / "examples" / "layer.py")
    'source/examples/layer.py.md'
    """
    inside = path.is_relative_to(ROOT / "docs")
    name = path.relative_to(ROOT / "docs" if inside else ROOT).as_posix()
    if path.is_dir():
        name += "/README.md"
    elif not inside and path.suffix in LANGUAGES:
        name += ".md"
    return name if inside else f"source/{name}"


def links(text: str) -> list[str]:
    """Relative links outside code blocks."""
    targets = (match.group(1) for match in LINK.finditer(CODE.sub("", text)))
    return [link for link in targets if "://" not in link and not link.startswith("mailto:")]


def content_of(path: Path) -> str:
    """The Markdown page for a file or folder that is not a page already."""
    if path.is_dir():
        names = sorted(p for p in path.iterdir() if not p.name.startswith((".", "__")))
        rows = "\n".join(
            f"- [{p.name}]({p.name})" if p.is_file() and p.suffix in LANGUAGES else f"- `{p.name}`"
            for p in names
        )
        return f"# {path.relative_to(ROOT).as_posix()}\n\n{rows}\n"
    fence = "`" * 6
    name = path.relative_to(ROOT).as_posix()
    return f"# {name}\n\n{fence}{LANGUAGES[path.suffix]}\n{path.read_text(encoding='utf-8')}\n{fence}\n"


def origin(uri: str) -> Path:
    """The file or folder of the repository that a page shows."""
    name = uri.removeprefix("source/") if uri.startswith("source/") else f"docs/{uri}"
    path = ROOT / name
    if not path.exists():
        path = ROOT / (
            name.removesuffix("/README.md") if name.endswith("/README.md") else name.removesuffix(".md")
        )
    return path


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for everything that pages link to, directly or through added pages."""
    waiting = [file for file in files if file.src_uri.endswith(".md")]
    while waiting:
        uri = waiting.pop().src_uri
        path = origin(uri)
        text = path.read_text(encoding="utf-8") if path.is_file() and path.suffix == ".md" else ""
        if path.is_dir():
            text = content_of(path)
        base = path if path.is_dir() else path.parent
        for link in links(text):
            target = Path(os.path.normpath(base / link))
            if (
                not target.exists()
                or not target.is_relative_to(ROOT)
                or files.get_file_from_path(page_of(target))
            ):
                continue
            if target.is_dir() and (target / "README.md").is_file():
                target /= "README.md"
                if files.get_file_from_path(page_of(target)):
                    continue
            made = target.is_dir() or target.suffix in LANGUAGES
            file = (
                File.generated(config, page_of(target), content=content_of(target))
                if made
                else File.generated(config, page_of(target), abs_src_path=str(target))
            )
            files.append(file)
            if page_of(target).endswith(".md"):
                waiting.append(file)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links to where the site shows their targets."""
    del config
    path, here = origin(page.file.src_uri), Path(page.file.src_uri).parent
    base = path if path.is_dir() else path.parent

    def rewrite(match: re.Match[str]) -> str:
        link, anchor = match.group(1), match.group(2) or ""
        target = Path(os.path.normpath(base / link))
        if "://" in link or not target.exists() or not target.is_relative_to(ROOT):
            return match.group(0)
        uri = page_of(target)
        if files.get_file_from_path(uri) is None:
            return match.group(0)
        return Path(os.path.relpath(uri, here)).as_posix() + anchor

    pieces, last = [], 0
    for block in CODE.finditer(markdown):
        pieces += [LINK.sub(rewrite, markdown[last : block.start()]), block.group(0)]
        last = block.end()
    return "".join([*pieces, LINK.sub(rewrite, markdown[last:])])
