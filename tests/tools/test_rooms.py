"""The map of the rooms is read from the source, and its layers are those that the linter checks."""

import tomllib

import pytest

from support.paths import ROOT
from tools import rooms

pytestmark = pytest.mark.xdist_group("rooms")  # in one process: the tests share what was measured


@pytest.fixture(scope="module")
def tree():
    return rooms.measure(ROOT)


def test_layers_equal_the_import_contract():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    assert [{f"sgpa.{room}" for room in layer} for layer in rooms.LAYERS] == [
        {name.strip() for name in layer.split("|")} for layer in layers
    ]


def test_every_room_is_described_and_measured(tree):
    assert set(tree) == set(rooms.ABOUT) == {room for layer in rooms.LAYERS for room in layer}


def test_imports_point_down(tree):
    height = {room: i for i, layer in enumerate(rooms.LAYERS) for room in layer}
    assert all(height[name] < height[lower] for name, room in tree.items() for lower in room.imports)


def test_numbers_of_a_small_package(tmp_path):
    package = tmp_path / "src" / "sgpa"
    for name in ("a", "b", "c"):
        (package / name).mkdir(parents=True)
    (package / "__init__.py").write_text("import sgpa.a\n")
    (package / "a" / "x.py").write_text("from sgpa.b import y\nimport sgpa.c.z\n\ndef f():\n    return 1\n")
    (package / "b" / "y.py").write_text("from sgpa import c\n")
    (package / "c" / "z.py").write_text("z = 1\nz = 2\n")
    tree = rooms.measure(tmp_path)
    assert tree["a"].imports == ["b", "c"]
    assert tree["a"].largest_function == rooms.Measure("f in a/x.py", 2)
    assert {name: room.lines for name, room in tree.items()} == {"a": 5, "b": 1, "c": 2}
    assert rooms.reduced(tree) == [("a", "b"), ("b", "c")]  # a -> c follows
    assert rooms.from_json(rooms.to_json(tree)) == tree


def test_page_shows_both_trees(tree):
    text = rooms.page(tree, rooms.from_json(rooms.BEFORE.read_text(encoding="utf-8")))
    drawn = rooms.drawing(tree)
    assert drawn.count("marker-end") == len(rooms.reduced(tree))
    assert all(f">{room}</text>" in drawn for room in tree)
    assert f"| 1 | `core` | {tree['core'].lines:,} |" in text
    assert "| names at the top level | 52 | 13 |" in text
