"""Measure the top-level packages ("rooms") of the package and draw their imports.

Usage: python -m tools.rooms [TREE]            print the numbers of a source tree (default: this one)
       python -m tools.rooms --page            write docs/reference/rooms.md
       python -m tools.rooms --compare TREE    print both trees side by side

Everything is read with `ast`; nothing is imported, so that any version of the tree can be measured.
"""

import argparse
import ast
import json
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path

from sgpa.core.files import write_text

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "rooms.md"
DRAWING = PAGE.with_suffix(".svg")
BEFORE = ROOT / "docs" / "reference" / "rooms-before.json"  # numbers of commit 20f99e3
PACKAGE = "sgpa"
LAYERS = (  # top to bottom, as in pyproject.toml
    ("cli",),
    ("experiments", "report"),
    ("training",),
    ("inference",),
    ("methods", "evaluation"),
    ("posthoc",),
    ("models",),
    ("attention",),
    ("gp", "data"),
    ("core",),
)
ABOUT = {
    "cli": "Parses arguments, calls the library, prints results. One file per command.",
    "experiments": "Tasks (data ready for training and testing), recipes (frozen settings), runner, audit.",
    "report": "Turns saved results into tables, figures and one HTML page. It never loads a model.",
    "posthoc": "`sgpa.attach`: a sparse GP on the attention heads of somebody's trained Transformer.",
    "training": "One training loop for all methods: plans, steps, checkpoints, selection, logs.",
    "inference": "Turns a saved predictor and new files into answers, and serves predictions on a GPU.",
    "methods": "One file per method, behind one contract: build, loss, predictor.",
    "evaluation": "Metrics of predictions: accuracy, NLL, calibration, detection, robustness.",
    "models": "The Transformer: config, embeddings, layers, saving, linearised prediction.",
    "attention": "Layers that replace `nn.MultiheadAttention`, their global state, the fast path.",
    "gp": "The equations: kernels, posteriors, likelihoods, objective; fused operators equal to them.",
    "data": "Public data sets and user files as tensors: images, texts, graphs, corruptions.",
    "core": "What every room needs: types, errors, files, config, random numbers, devices, provenance.",
}


PAGE_TEXT = """# The rooms of the package

Where is what, and what may import what? `sgpa` has thirteen top-level packages, called rooms. Imports point
downwards only; rooms of one layer do not import each other. `lint-imports` checks the order
(`pyproject.toml`), and [decision 1](../decisions/0001-layout.md) gives the reasons. This page is written by
`python -m tools.rooms --page`.

An arrow means "imports". Imports that follow from other arrows are left out.

![The imports between rooms](rooms.svg)

Lines are physical lines of Python. "Module" and "function" are the lines of the largest one.

| layer | room | lines | module | function | contents |
|--:|---|--:|--:|--:|---|
{rooms}

## Before and now

Before is commit 20f99e3, the last one with the first layout.

{comparison}

Lines by name at the top level at commit 20f99e3:

{before}.
"""


@dataclass(frozen=True)
class Measure:
    """A name and its number of lines."""

    name: str
    lines: int


@dataclass(frozen=True)
class Room:
    """A top-level package, or a module beside the packages."""

    lines: int
    modules: int
    largest_module: Measure
    largest_function: Measure
    imports: list[str]  # other rooms


Tree = dict[str, Room]


def measure(tree: Path) -> Tree:
    """The rooms below `tree`/src/sgpa, without the files of the root package itself."""
    root = tree / "src" / PACKAGE
    files: dict[str, list[Path]] = {}
    for file in sorted(root.rglob("*.py")):
        name = file.relative_to(root).parts[0].removesuffix(".py")
        if not name.startswith("__"):  # sgpa/__init__.py and sgpa/__main__.py
            files.setdefault(name, []).append(file)
    return {name: measure_room(name, files[name], root, set(files)) for name in sorted(files)}


def measure_room(name: str, files: list[Path], root: Path, rooms: set[str]) -> Room:
    """The numbers of one room."""
    modules, functions, imports = [], [Measure("none", 0)], set[str]()
    for file in files:
        text, path = file.read_text(encoding="utf-8"), file.relative_to(root).as_posix()
        parsed = ast.parse(text)
        modules.append(Measure(path, len(text.splitlines())))
        functions += [Measure(f"{f.name} in {path}", f.lines) for f in functions_of(parsed)]
        imports |= rooms_imported(parsed)
    return Room(
        lines=sum(module.lines for module in modules),
        modules=len(modules),
        largest_module=max(modules, key=lambda m: m.lines),
        largest_function=max(functions, key=lambda f: f.lines),
        imports=sorted(imports & rooms - {name}),
    )


def functions_of(parsed: ast.Module) -> list[Measure]:
    """Every function and method with its lines, decorators not counted."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(parsed) if isinstance(node, kinds))
    return [Measure(node.name, (node.end_lineno or node.lineno) - node.lineno + 1) for node in nodes]


def rooms_imported(parsed: ast.Module) -> set[str]:
    """The top-level packages that a module imports, also inside functions and for type checking."""
    names = set()
    for node in ast.walk(parsed):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names |= {node.module} if node.module != PACKAGE else {f"{PACKAGE}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith(f"{PACKAGE}.")}


def reduced(tree: Tree) -> list[tuple[str, str]]:
    """The imports between rooms without those that follow from others (transitive reduction)."""

    def reaches(start: str, end: str) -> bool:
        return any(name == end or reaches(name, end) for name in tree[start].imports)

    return [
        (name, imported)
        for name, room in tree.items()
        for imported in room.imports
        if not any(reaches(other, imported) for other in room.imports if other != imported)
    ]


def drawing(tree: Tree) -> str:
    """The import graph as SVG: one row per layer, an arrow from importer to imported."""
    width, height, gap, row = 190, 44, 60, 84
    corners = {}
    for number, rooms in enumerate(LAYERS):
        left = (2 * width + gap - len(rooms) * width - (len(rooms) - 1) * gap) / 2 + 40
        corners |= {name: (left + i * (width + gap), 12 + number * row) for i, name in enumerate(rooms)}
    size = (2 * width + gap + 80, 24 + height + (len(LAYERS) - 1) * row)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" '
        'font-family="sans-serif" font-size="14" text-anchor="middle">',
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#5c6bc0"/></marker></defs>',
        f'<rect width="{size[0]}" height="{size[1]}" fill="#ffffff"/>',
    ]
    for upper, lower in reduced(tree):
        (x, y), (u, v) = corners[upper], corners[lower]
        x, y, u = x + width / 2, y + height, u + width / 2
        shift = 0.12 * (u - x)
        bend = 0 if v - y <= row else (150 if u >= x else -150)  # around the boxes between
        parts.append(
            f'<path d="M{x + shift:.0f} {y}C{x + shift + bend:.0f} {(y + v) / 2:.0f} '
            f'{u - shift + bend:.0f} {(y + v) / 2:.0f} {u - shift:.0f} {v}" fill="none" stroke="#5c6bc0" '
            'stroke-width="1.5" marker-end="url(#tip)"/>'
        )
    for name, (x, y) in corners.items():
        middle = x + width / 2
        parts += [
            f'<rect x="{x:.0f}" y="{y}" width="{width}" height="{height}" rx="6" '
            'fill="#e8eaf6" stroke="#5c6bc0"/>',
            f'<text x="{middle:.0f}" y="{y + 19}" font-weight="bold">{name}</text>',
            f'<text x="{middle:.0f}" y="{y + 36}" font-size="12">{tree[name].lines:,} lines</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


def totals(tree: Tree) -> list[str]:
    """Numbers of the whole package, as the cells of a table."""
    rooms = tree.values()
    module = max((room.largest_module for room in rooms), key=lambda m: m.lines)
    function = max((room.largest_function for room in rooms), key=lambda f: f.lines)
    return [
        str(len(tree)),
        str(sum(room.modules for room in rooms)),
        f"{sum(room.lines for room in rooms):,}",
        f"{module.lines} (`{module.name}`)",
        f"{function.lines} (`{function.name}`)",
    ]


def comparison(before: Tree, after: Tree) -> str:
    """A table of the numbers of two trees."""
    titles = ("names at the top level", "modules", "lines", "largest module", "largest function")
    rows = zip(titles, totals(before), totals(after), strict=True)
    return "\n".join(["| | before | now |", "|---|--:|--:|", *(f"| {' | '.join(row)} |" for row in rows)])


def page(after: Tree, before: Tree) -> str:
    """The page about the rooms."""
    rooms = "\n".join(
        f"| {len(LAYERS) - number} | `{name}` | {after[name].lines:,} | {after[name].largest_module.lines} "
        f"| {after[name].largest_function.lines} | {ABOUT[name]} |"
        for number, layer in enumerate(LAYERS)
        for name in layer
    )
    lines_before = ", ".join(f"{name} {room.lines:,}" for name, room in before.items())
    return PAGE_TEXT.format(
        rooms=rooms,
        comparison=comparison(before, after),
        before=textwrap.fill(lines_before, 118),
    )


def to_json(tree: Tree) -> str:
    """The numbers of a tree as JSON."""
    rooms = (f'"{name}": {json.dumps(asdict(room))}' for name, room in tree.items())
    return "{\n" + ",\n".join(rooms) + "\n}\n"  # one room per line


def from_json(text: str) -> Tree:
    """The numbers of a tree from JSON."""
    tree = {}
    for name, data in json.loads(text).items():
        largest = {key: Measure(**data[key]) for key in ("largest_module", "largest_function")}
        tree[name] = Room(**{**data, **largest})
    return tree


def main(arguments: list[str] | None = None) -> None:
    """Print numbers, compare trees, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tree", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--page", action="store_true", help="write docs/reference/rooms.md")
    parser.add_argument("--compare", type=Path, metavar="TREE", help="an older tree")
    args = parser.parse_args(arguments)
    tree = measure(args.tree)
    if args.page:
        write_text(PAGE, page(tree, from_json(BEFORE.read_text(encoding="utf-8"))))
        write_text(DRAWING, drawing(tree))
    elif args.compare:
        print(comparison(measure(args.compare), tree))
    else:
        print(to_json(tree), end="")


if __name__ == "__main__":
    main()
