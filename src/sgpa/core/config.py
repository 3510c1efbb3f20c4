"""Frozen configs as plain data: written to JSON, read back, changed by `field=value`, compared.

The names of classes and fields are a file format. `RENAMED_KINDS`, `RENAMED_FIELDS` and `REMOVED_FIELDS`
translate what older versions wrote; old names appear nowhere else.
"""

import json
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar

from sgpa.core.arguments import fits, type_in_words
from sgpa.core.errors import CheckpointError, ConfigError, nearest, shown

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
    """Plain data of a config, as read from a file, with old names translated.

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


DERIVED = "derived"  # key of a field's metadata


def derived(reasons: Mapping[str, str]) -> dict[str, Any]:
    """Metadata of a config's field: which paths below it are set by something else, and what to set instead.

    The empty path is the field itself. `override` refuses these paths and `leaves` leaves them out.
    """
    return {DERIVED: dict(reasons)}


def override(config: Config, settings: Sequence[str]) -> Config:
    """The config with every `path=value` applied, in order.

    Args:
        config: A frozen dataclass, possibly nested.
        settings: Texts such as "optim.epochs=20".

    Returns:
        A changed copy; every dataclass on the way checks itself again.

    >>> from sgpa.training.optim import OptimConfig
    >>> override(OptimConfig(), ["epochs=20", "clip=1.0"]).epochs
    20
    """
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path.strip():
            raise ConfigError(f"{setting!r} is not of the form field=value, for example optim.epochs=20")
        config = _set(config, path.strip().split("."), text.strip(), path.strip(), {})
    return config


def leaves(config: Any, path: str = "", hidden: Mapping[str, str] | None = None) -> Iterator[tuple[str, Any]]:
    """Every field that `override` can set, as a path, with its value."""
    for f in fields(config):
        below = _below(f, hidden or {})
        if "" in below:
            continue
        here, value = f"{path}.{f.name}" if path else f.name, getattr(config, f.name)
        if is_dataclass(value):
            yield from leaves(value, here, below)
        else:
            yield here, value


def _below(f: Field[Any], hidden: Mapping[str, str]) -> dict[str, str]:
    """The derived paths of a field, relative to it: its own, and those that a config around it names."""
    inner = {
        path.removeprefix(f"{f.name}."): why for path, why in hidden.items() if path.startswith(f"{f.name}.")
    }
    itself = {"": hidden[f.name]} if f.name in hidden else {} if f.init else {"": "it is computed"}
    return {**f.metadata.get(DERIVED, {}), **inner, **itself}


def _set(config: Any, path: list[str], text: str, whole: str, hidden: Mapping[str, str]) -> Any:
    name, *rest = path
    known = {f.name: f for f in fields(config)} if is_dataclass(config) else {}
    if name in (renamed := RENAMED_FIELDS.get(type(config).__name__, {})):
        raise ConfigError(f"{whole}: {name} is called {renamed[name]} now")
    if name not in known:
        owner = whole.rsplit("." + name, 1)[0] if "." in whole else "the recipe"
        hint = nearest(name, known) or "; it has no fields"
        raise ConfigError(f"no field {whole}: {owner} has no {name}{hint}")
    below, value = _below(known[name], hidden), getattr(config, name)
    if "" in below:
        raise ConfigError(f"{whole} cannot be set: {below['']}")
    if rest:
        return replace(config, **{name: _set(value, rest, text, whole, below)})
    if is_dataclass(value):
        inner = ", ".join(f"{whole}.{f.name}" for f in fields(value) if "" not in _below(f, below))
        raise ConfigError(f"{whole} is a group of fields; set one of them: {inner}")
    wanted = typing.get_type_hints(type(config))[name]
    return replace(config, **{name: _value(text, wanted, whole)})


def _value(text: str, wanted: Any, path: str) -> Any:
    """The text as a value of the field's type."""
    try:
        value = json.loads(text.lower() if text.lower() in ("true", "false", "none", "null") else text)
    except json.JSONDecodeError:
        value = None if text.lower() == "none" else text
    for candidate in (value, text):
        if (converted := _as(candidate, wanted)) is not _NO:
            return converted
    raise ConfigError(f"{path}={text}: expected {type_in_words(wanted)}")


_NO = object()


def _as(value: Any, wanted: Any) -> Any:  # noqa: PLR0911
    """The value converted to the type, or `_NO`; integers are accepted for floats."""
    origin = typing.get_origin(wanted)
    if origin in (typing.Union, types.UnionType):
        return next((v for kind in typing.get_args(wanted) if (v := _as(value, kind)) is not _NO), _NO)
    if origin is Literal:
        return value if value in typing.get_args(wanted) else _NO
    if origin is tuple:
        kind = typing.get_args(wanted)[0]
        items = value if isinstance(value, list) else str(value).split(",")
        converted = [_as(_number(item), kind) for item in items]
        return _NO if _NO in converted else tuple(converted)
    if wanted is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if wanted is types.NoneType or wanted is None:
        return None if value is None else _NO
    if wanted is int and isinstance(value, bool):
        return _NO
    return value if isinstance(wanted, type) and isinstance(value, wanted) else _NO


def _number(item: Any) -> Any:
    """The number that a text spells, or the text itself."""
    try:
        return json.loads(item) if isinstance(item, str) else item
    except json.JSONDecodeError:
        return item


def to_plain(config: Any, names: Mapping[type, str] | None = None) -> Any:
    """A config as plain data for JSON. Every dataclass becomes a mapping with its `kind`.

    `names` gives the kinds of classes; without it a kind is the name of the class.
    """
    if is_dataclass(config) and not isinstance(config, type):
        kind = type(config).__name__ if names is None else names[type(config)]
        return {"kind": kind, **{f.name: to_plain(getattr(config, f.name), names) for f in fields(config)}}
    return [to_plain(item, names) for item in config] if isinstance(config, tuple | list) else config


def from_plain(data: Any, kinds: Mapping[str, type], source: str = "config") -> Any:
    """The config that `to_plain` wrote, checked again.

    Old names are translated, and fields that are missing take their defaults. A mapping without a `kind` is
    of the class that the field around it is annotated with.

    Args:
        data: Plain data, as read from JSON.
        kinds: The classes that may occur, by kind.
        source: Where the data come from, for errors.
    """
    return _from_plain(modernised(data), kinds, source)


def _from_plain(data: Any, kinds: Mapping[str, type], source: str, wanted: Any = None) -> Any:
    if isinstance(data, list | tuple):
        return tuple(_from_plain(item, kinds, source) for item in data)
    if not isinstance(data, Mapping):
        return data
    name = data.get("kind")
    kind: Any = kinds.get(str(name))
    if "kind" not in data and isinstance(wanted, type) and is_dataclass(wanted):
        name, kind = wanted.__name__, wanted
    if kind is None:
        raise ConfigError(f"{source}: unknown config type {name!r}{nearest(str(name), kinds)}")
    known = {f.name: f.init for f in fields(kind)}
    if unknown := sorted(set(data) - set(known) - {"kind"}):
        raise ConfigError(f"{source}: {name} has unknown fields {', '.join(unknown)}")
    hints = typing.get_type_hints(kind)
    given = {
        key: _from_plain(value, kinds, source, hints[key]) for key, value in data.items() if known.get(key)
    }
    for key, value in given.items():
        if not fits(value, hints[key]):
            raise ConfigError(
                f"{source}: {name}: {key}={shown(value)} (allowed: {type_in_words(hints[key])})"
            )
    try:
        return kind(**given)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    except TypeError as error:
        raise ConfigError(f"{source}: {name}: {error}") from error


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every field in which two plain configs differ: its path and both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from differences(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif old != new:
        yield path, old, new
