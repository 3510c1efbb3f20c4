"""Configs as plain data: written to JSON, read back, changed field by field (`optim.epochs=20`), compared.

Names of classes and fields are a file format. `RENAMED_KINDS`, `RENAMED_FIELDS` and `REMOVED_FIELDS`
translate what older versions wrote; nothing else knows of old names.
"""

import json
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar

from sgpa.core.errors import CheckpointError, ConfigError, nearest

Config = TypeVar("Config")

RENAMED_KINDS = {"Examination": "EvaluationConfig"}
_SGPA = {"quiet": "initial_variance_scale", "drops": "dropout_at_prediction", "place": "init_on_data"}
_KERNEL = {"reach": "locality"}
_GRAPHS = {"ends": "endpoint_types"}
RENAMED_FIELDS: dict[str, dict[str, str]] = {  # kind in recipe.json or in a model's config.json: old -> new
    "Recipe": {
        "warm": "stage1",
        "after": "stage2",
        "after_dropout": "stage2_dropout",
        "all_go_on": "stage2_for_all",
        "members_drop": "ensemble_dropout",
        "tempered": "ensemble_temperature",
        "examination": "evaluation",
    },
    "EvaluationConfig": {"foreign_rows": "ood_rows"},
    "Ensemble": {"tempered": "fit_temperature"},
    "Sgpa": _SGPA,
    "KernelConfig": _KERNEL,
    "kernel": _KERNEL,
    "GraphConfig": _GRAPHS,
    "graphs": _GRAPHS,
}
REMOVED_FIELDS: dict[str, dict[str, Any]] = {  # kind: fields that are gone, with the one value they can have
    "SgpaConfig": {"paths": False},
    "sgpa": {"paths": False},
    "MeanFieldConfig": {"estimator": "flipout"},
    "mean-field": {"estimator": "flipout"},
}


def modernised(saved: Any) -> Any:
    """Plain data of a config, as read from a file, with the names of today.

    >>> modernised({"kind": "Sgpa", "quiet": 0.3})
    {'kind': 'Sgpa', 'initial_variance_scale': 0.3}
    """
    if isinstance(saved, list | tuple):
        return [modernised(item) for item in saved]
    if not isinstance(saved, dict):
        return saved
    kind = RENAMED_KINDS.get(str(saved.get("kind")), saved.get("kind"))
    renamed, removed = RENAMED_FIELDS.get(str(kind), {}), REMOVED_FIELDS.get(str(kind), {})
    for name, value in removed.items():
        if saved.get(name, value) != value:
            raise CheckpointError(f"{kind}: {name}={saved[name]!r} was removed; use an older version of sgpa")
    parts = {
        renamed.get(name, name): modernised(value)
        for name, value in saved.items()
        if name != "kind" and name not in removed
    }
    return ({} if kind is None else {"kind": kind}) | parts


def modern_path(path: str, config: Any) -> str:
    """A `field.field` path with the names of today, for settings that an older version wrote down."""
    names = []
    for name in path.split("."):
        kind = type(config).__name__
        names.append(RENAMED_FIELDS.get(kind, {}).get(name, name))
        config = getattr(config, names[-1], None)
    return ".".join(names)


def override(config: Config, settings: Sequence[str]) -> Config:
    """The config with every `path=value` applied, in order.

    >>> from sgpa.training.optim import OptimConfig
    >>> override(OptimConfig(), ["epochs=20", "clip=1.0"]).epochs
    20
    """
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path.strip():
            raise ConfigError(f"{setting!r} is not of the form field=value, for example optim.epochs=20")
        config = _set(config, path.strip().split("."), text.strip(), path.strip())
    return config


def leaves(config: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every field that can be changed, with its value."""
    for f in fields(config):
        here, value = f"{path}.{f.name}" if path else f.name, getattr(config, f.name)
        if is_dataclass(value):
            yield from leaves(value, here)
        else:
            yield here, value


def _set(config: Any, path: list[str], text: str, whole: str) -> Any:
    name, *rest = path
    known = [f.name for f in fields(config)] if is_dataclass(config) else []
    if name in (renamed := RENAMED_FIELDS.get(type(config).__name__, {})):
        raise ConfigError(f"{whole}: {name} is called {renamed[name]} now")
    if name not in known:
        owner = whole.rsplit("." + name, 1)[0] if "." in whole else "the recipe"
        hint = nearest(name, known) or "; it has no fields"
        raise ConfigError(f"no field {whole}: {owner} does not know {name}{hint}")
    if rest:
        return replace(config, **{name: _set(getattr(config, name), rest, text, whole)})
    wanted = typing.get_type_hints(type(config))[name]
    if is_dataclass(getattr(config, name)):
        inner = ", ".join(f"{whole}.{f.name}" for f in fields(getattr(config, name)))
        raise ConfigError(f"{whole} is a group of fields; set one of them: {inner}")
    return replace(config, **{name: _value(text, wanted, whole)})


def _value(text: str, wanted: Any, path: str) -> Any:
    """The text as a value of the field's type."""
    try:
        value = json.loads(text.lower() if text.lower() in ("true", "false", "none", "null") else text)
    except json.JSONDecodeError:
        value = None if text.lower() == "none" else text
    for candidate in (value, text):
        if (found := _as(candidate, wanted)) is not _NO:
            return found
    raise ConfigError(f"{path}={text}: expected {_words(wanted)}")


_NO = object()


def _as(value: Any, wanted: Any) -> Any:  # noqa: PLR0911
    """The value if the type allows it, else `_NO`; a whole number will do where any number does."""
    origin = typing.get_origin(wanted)
    if origin in (typing.Union, types.UnionType):
        return next((v for kind in typing.get_args(wanted) if (v := _as(value, kind)) is not _NO), _NO)
    if origin is Literal:
        return value if value in typing.get_args(wanted) else _NO
    if origin is tuple:
        kind = typing.get_args(wanted)[0]
        items = value if isinstance(value, list) else str(value).split(",")
        found = [_as(_number(item), kind) for item in items]
        return _NO if _NO in found else tuple(found)
    if wanted is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if wanted is types.NoneType or wanted is None:
        return None if value is None else _NO
    if wanted is int and isinstance(value, bool):
        return _NO
    return value if isinstance(wanted, type) and isinstance(value, wanted) else _NO


def _number(item: Any) -> Any:
    """An item of a list as the number it spells, if it does."""
    try:
        return json.loads(item) if isinstance(item, str) else item
    except json.JSONDecodeError:
        return item


def _words(wanted: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
    origin = typing.get_origin(wanted)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_words(kind) for kind in typing.get_args(wanted))
    if origin is Literal:
        return " or ".join(map(str, typing.get_args(wanted)))
    if origin is tuple:
        return "a list, separated by commas"
    return "none" if wanted is types.NoneType else names.get(wanted, str(wanted))


def plain(value: Any) -> Any:
    """A config as plain data; every object says what kind it is."""
    if is_dataclass(value):
        parts = {f.name: plain(getattr(value, f.name)) for f in fields(value)}
        return {"kind": type(value).__name__, **parts}
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


def completed(saved: Any, config: Any) -> Any:
    """A saved config with the fields that came later at their defaults: what is done without a choice."""
    if not isinstance(saved, dict) or not is_dataclass(config):
        return saved
    known = {name: completed(value, getattr(config, name, None)) for name, value in saved.items()}
    later = [f for f in fields(config) if f.name not in saved and f.default is not MISSING]
    return known | {f.name: plain(f.default) for f in later}


def restored(saved: Any, config: Any) -> Any:
    """The config that was saved, whatever the recipe of its name has come to be since."""
    if not isinstance(saved, dict):
        return tuple(saved) if isinstance(saved, list) else saved
    if not is_dataclass(config) or isinstance(config, type) or saved.get("kind") != type(config).__name__:
        raise CheckpointError(f"recipe.json speaks of a {saved.get('kind')}, which has no place there now")
    parts = {f.name: getattr(config, f.name) for f in fields(config)}
    return type(config)(**{name: restored(saved.get(name, part), part) for name, part in parts.items()})


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every field in which two plain configs differ: its path and both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from differences(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif old != new:
        yield path, old, new
