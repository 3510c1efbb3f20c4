"""Fingerprints: whether files in a directory belong to a training with these settings and these data.

A fingerprint is a hash of the settings as plain data without default values, so that a field that is added
later with its default changes no fingerprint, and of the bytes of all data. The settings are stored beside
it: they show what differs, and they are read with the names of today where a name has changed since. If a
default itself ever changes, `VERSION` must change with it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from sgpa.core.config import differences, modernised
from sgpa.core.inputs import tensors_of
from sgpa.data import Dataset
from sgpa.methods import Method
from sgpa.models import ModelConfig
from sgpa.training.function_data import function_as_data
from sgpa.training.legacy_fingerprint import legacy_fingerprint
from sgpa.training.optim import OptimConfig

VERSION = 2
SHOWN = 3  # differences that an error names


@dataclass(frozen=True)
class Fingerprint:
    """What identifies a training. Comparing with saved files is all it is for."""

    method: Method
    config: ModelConfig
    optim: OptimConfig
    seed: int
    train: Dataset
    validation: Dataset
    init_from: Mapping[str, Tensor] | None = None
    extra_selectors: tuple[Method, ...] = ()

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All that decides the result, as JSON; data as digests."""
        weights = self.init_from
        return {
            "method": without_defaults(self.method),
            "model": without_defaults(self.config),
            "optim": without_defaults(self.optim),
            "seed": self.seed,
            "extra_selectors": [without_defaults(method) for method in self.extra_selectors],
            "data": {"train": data_digest(self.train), "validation": data_digest(self.validation)},
            **_augmentation(self.train.augment),
            "init_from": None if weights is None else digest(*(weights[name] for name in sorted(weights))),
        }

    @cached_property
    def value(self) -> str:
        """The hash of the settings."""
        return _hash(self.settings)

    @property
    def note(self) -> dict[str, Any]:
        """What a run stores to be recognised."""
        return {"fingerprint": self.value, "version": VERSION, "settings": self.settings}

    def matches(self, note: Mapping[str, Any]) -> bool:
        """Whether stored data are of this training. Version 0.1 stored a hash without a version."""
        if "version" not in note:
            return note.get("fingerprint") == legacy_fingerprint(self)
        return note["fingerprint"] == self.value or _hash(_stored(note)) == self.value

    def difference(self, note: Mapping[str, Any]) -> str:
        """How data and stored settings differ, for an error message; empty where they were not stored."""
        stored = _stored(note)
        if not stored:
            return ""
        settings = [
            f"{path} is {_shown(old)} there, {_shown(new)} now"
            for path, old, new in differences(stored, self.settings)
            if not path.startswith(("data", "init_from"))
        ]
        parts = [
            f"the {part} data differ"
            for part in ("train", "validation")
            if stored["data"][part] != self.settings["data"][part]
        ]
        if parts:  # which the settings of the embedding follow from
            settings = [setting for setting in settings if not setting.startswith("model.embedding.")]
        return "; ".join(([*parts, *settings] or ["init_from differs"])[:SHOWN])


def without_defaults(value: Any) -> Any:
    """A config as plain data: the kind of every object, and the fields that are not at their default.

    >>> without_defaults(OptimConfig(epochs=20))
    {'kind': 'OptimConfig', 'epochs': 20}
    """
    if is_dataclass(value):
        chosen = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        changed = {f.name: chosen[f.name] for f in fields(value) if f.init and chosen[f.name] != _default(f)}
        kind = {"kind": type(value).__name__}
        return kind | {name: without_defaults(part) for name, part in changed.items()}
    return [without_defaults(item) for item in value] if isinstance(value, tuple | list) else value


def _augmentation(function: Any) -> dict[str, Any]:
    """A data set's augmentation, unless it is a function of this package: recipes decide those."""
    if is_dataclass(function):
        return {"augment": without_defaults(function)}
    named = function is None or getattr(function, "__module__", "").startswith("sgpa.")
    return {} if named else {"augment": function_as_data(function)}


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def data_digest(data: Dataset) -> str:
    """The bytes of all inputs and targets, in order."""
    return digest(*tensors_of(data.inputs), data.targets)


def digest(*tensors: Tensor) -> str:
    """Types, shapes and bytes of tensors."""
    sha = hashlib.sha256()
    for x in tensors:
        sha.update(f"{x.dtype} {list(x.shape)} ".encode())
        sha.update(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()[:16]


def _hash(settings: Any) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _stored(note: Mapping[str, Any]) -> Any:
    return modernised(note.get("settings", {}))


def _shown(value: Any) -> str:
    return "the default" if value is None else str(value)
