"""Names in the documentation exist: `sgpa.X.y`, and `Class.attribute` of the classes of the package."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

from sgpa.experiments.recipes import DIGITS, leaves
from support.paths import ROOT

HISTORY = ("results", "lab", "decisions")  # folders whose pages speak of what there was
DOCS = ROOT / "docs"
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("src/sgpa/**/*.md")]
    + [page for page in DOCS.rglob("*.md") if page.relative_to(DOCS).parts[0] not in HISTORY]
)
FULL = re.compile(r"(?<![\w./-])sgpa((?:\.[A-Za-z_]\w*)+)")  # sgpa.fit, sgpa.gp.kernels
PART = re.compile(r"(?<![\w.])([A-Z]\w*)\.([a-z_]\w*)")  # Features.of, Transformer.predict
CODE = re.compile(r"```.*?```|`[^`\n]+`", flags=re.S)
SETTINGS = {name for name, _ in leaves(DIGITS)}  # recipes have settings such as sgpa.kl.a


@cache
def classes() -> dict[str, set[str]]:
    """The names of attributes of every class of the package, its own and those of its bases here."""
    own: dict[str, set[str]] = {}
    bases: dict[str, list[str]] = {}
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                names = own.setdefault(node.name, set())
                bases.setdefault(node.name, []).extend(b.id for b in node.bases if isinstance(b, ast.Name))
                for inner in ast.walk(node):
                    if isinstance(inner, ast.FunctionDef):
                        names.add(inner.name)
                    elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                        names.add(inner.id)
                    elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
                        names.add(inner.attr)
    return {name: own[name].union(*(own.get(base, set()) for base in bases[name])) for name in own}


def exists(dotted: str) -> bool:
    """Whether sgpa.a.b is a module, or an attribute of one, or a setting of recipes."""
    if f"sgpa.{dotted}" in SETTINGS or any(name.startswith(f"sgpa.{dotted}.") for name in SETTINGS):
        return True
    place = importlib.import_module("sgpa")
    parts = dotted.split(".")
    for i, part in enumerate(parts):
        if not hasattr(place, part):
            try:
                place = importlib.import_module("sgpa." + ".".join(parts[: i + 1]))
            except ImportError:
                return isinstance(place, type) and part in classes().get(place.__name__, set())
        else:
            place = getattr(place, part)
    return True


def missing(page: Path) -> list[str]:
    """Names in the code of a page that the package does not have."""
    code = "\n".join(CODE.findall(page.read_text(encoding="utf-8")))
    full = {dotted_name[1:] for dotted_name in FULL.findall(code)}
    parts = {(cls, name) for cls, name in PART.findall(code) if cls in classes()}
    return sorted(
        [f"sgpa.{name}" for name in full if not exists(name)]
        + [f"{cls}.{name}" for cls, name in parts if name not in classes()[cls]]
    )


def test_pages_are_collected():
    names = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert {"README.md", "docs/reference/notation.md", "docs/guides/layer.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_names_exist(page):
    assert not missing(page)


def test_a_missing_name_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "`sgpa.fit`, `sgpa.fitt`, `sgpa.gp.kernels`, `sgpa.Features.of`, `sgpa.kl.a`, `Features.values`, "
        "`DecoupledSgpa.global_keys`\n```\nsgpa.gp.nothing\n```\n"
    )
    assert missing(page) == ["DecoupledSgpa.global_keys", "sgpa.fitt", "sgpa.gp.nothing"]
