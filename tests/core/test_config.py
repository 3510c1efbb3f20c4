"""Configs as plain data: written, read back with old names translated, and changed field by field."""

import json
from dataclasses import dataclass, field, replace

import pytest

from sgpa.core.config import derived, from_plain, leaves, override, to_plain
from sgpa.core.errors import CheckpointError, ConfigError
from sgpa.experiments.recipes import RECIPES
from sgpa.experiments.recipes.schema import KINDS
from sgpa.methods import CATALOGUE
from sgpa.methods.kinds import KINDS as METHOD_KINDS


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int = 1
    kernel: str = "rbf"


@dataclass(frozen=True, kw_only=True)
class Outer:
    inner: Inner = field(default_factory=Inner, metadata=derived({"kernel": "set kernel instead"}))
    kernel: str = "rbf"
    sizes: tuple[int, ...] = ()
    total: int = field(init=False, default=0)


TWO = {"Inner": Inner, "Outer": Outer}


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_survive_json(name):
    saved = json.loads(json.dumps(to_plain(RECIPES[name])))
    assert from_plain(saved, KINDS) == RECIPES[name]


@pytest.mark.parametrize("method", CATALOGUE)
def test_methods_survive_json(method):
    saved = json.loads(json.dumps(to_plain(CATALOGUE[method])))
    assert from_plain(saved, METHOD_KINDS) == CATALOGUE[method]


def test_missing_fields_take_their_defaults():
    assert from_plain({"kind": "Outer", "sizes": [1, 2]}, TWO) == Outer(sizes=(1, 2))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"kind": "Another"}, r"recipe\.json: unknown config type 'Another'"),
        ({"kind": "Inner", "colour": 1}, r"recipe\.json: Inner has unknown fields colour"),
        ({"kind": "Outer", "inner": {"kind": "Iner"}}, "unknown config type 'Iner'; did you mean Inner"),
    ],
)
def test_unknown_types_and_fields_are_errors(data, message):
    with pytest.raises(ConfigError, match=message):
        from_plain(data, TWO, "recipe.json")


def test_old_names_are_translated_and_removed_fields_refused(monkeypatch):
    monkeypatch.setattr("sgpa.core.config.RENAMED_KINDS", {"Interior": "Inner"})
    monkeypatch.setattr("sgpa.core.config.RENAMED_FIELDS", {"Inner": {"extent": "size"}})
    monkeypatch.setattr("sgpa.core.config.REMOVED_FIELDS", {"Inner": {"fast": True}})
    assert from_plain({"kind": "Interior", "extent": 3, "fast": True}, TWO) == Inner(size=3)
    with pytest.raises(CheckpointError, match="Inner: fast=False was removed"):
        from_plain({"kind": "Interior", "fast": False}, TWO)
    with pytest.raises(ConfigError, match=r"inner\.extent: extent is called size now"):
        override(Outer(), ["inner.extent=3"])


def test_derived_fields_are_neither_listed_nor_set():
    assert dict(leaves(Outer())) == {"inner.size": 1, "kernel": "rbf", "sizes": ()}
    with pytest.raises(ConfigError, match=r"inner\.kernel cannot be set: set kernel instead"):
        override(Outer(), ["inner.kernel=linear"])
    with pytest.raises(ConfigError, match=r"inner is a group of fields; set one of them: inner\.size$"):
        override(Outer(), ["inner=3"])
    with pytest.raises(ConfigError, match="total cannot be set: it is computed"):
        override(Outer(), ["total=3"])
    assert override(Outer(), ["inner.size=3"]) == replace(Outer(), inner=Inner(size=3))
