"""The fingerprint of version 0.1, recomputed so that its finished runs and checkpoints are still recognised.

Version 0.1 hashed `repr(method)`, the model's config as JSON, the optimiser's settings, the seed, the number
of rows, the targets of the training rows, the initial weights and the methods that select an epoch. Its
names of classes and fields are written down here, in their order; names of today are translated by the
tables of `core/config.py`. Fields that came later must have their default: version 0.1 did without them.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from sgpa.core.config import RENAMED_FIELDS, RENAMED_KINDS
from sgpa.core.files import digest

if TYPE_CHECKING:
    from sgpa.training.fingerprint import Fingerprint

FIELDS = {  # by class, the fields of version 0.1
    "Mle": "attention",
    "Sgpa": "attention kl place quiet samples drops",
    "Mfvi": "attention weights kl anneal",
    "Sngp": "attention spectral head covariance predictive samples mean_field_factor",
    "McDropout": "base samples",
    "KlWeights": "g a anneal",
    "OptimConfig": "epochs batch_size lr final_lr warmup clip weight_decay select select_every",
    "ModelConfig": "embedding attention weights head depth heads width dropout pooling outputs likelihood",
    "KernelConfig": "name preset reach",
    "DotProductConfig": "",
    "KernelAttentionConfig": "kernel tied",
    "SgpaConfig": "form kernel num_global init whitened joint paths tied",
    "PatchConfig": "image_size channels patch_size mean std",
    "TokenConfig": "vocabulary max_tokens embedding_width pad scale drop",
    "GraphConfig": "node_types edge_types identifier_width max_tokens ends",
    "WordsConfig": "vocabulary features layers max_tokens embedding_width scale drop",
    "PointConfig": "",
    "MeanFieldConfig": "prior_std initial_std estimator",
    "SpectralConfig": "bound iterations",
    "LinearHeadConfig": "",
    "RandomFeatureConfig": "features ridge",
}
REMOVED: dict[str, dict[str, Any]] = {  # since version 0.1: the one value that can still be met
    "SgpaConfig": {"paths": False},
    "MeanFieldConfig": {"estimator": "flipout"},
}
KINDS = {  # of parts of a model, in JSON
    "ModelConfig": "model",
    "KernelConfig": "kernel",
    "DotProductConfig": "dot-product",
    "KernelAttentionConfig": "kernel-attention",
    "SgpaConfig": "sgpa",
    "PatchConfig": "patches",
    "TokenConfig": "tokens",
    "GraphConfig": "graphs",
    "WordsConfig": "words",
    "PointConfig": "point",
    "MeanFieldConfig": "mean-field",
    "SpectralConfig": "spectral",
    "LinearHeadConfig": "linear",
    "RandomFeatureConfig": "random-features",
}


class _NewSettingError(Exception):
    """A setting that version 0.1 did not have."""


def legacy_fingerprint(run: "Fingerprint") -> str | None:
    """The fingerprint that version 0.1 would have given; None where it could not express the settings."""
    weights = run.init_from
    try:
        settings = [
            _repr(run.method),
            _json(run.config),
            dict(_parts(run.optim)),
            run.seed,
            [len(run.train), len(run.validation)],
            digest(run.train.targets),
            None if weights is None else sorted((name, digest(w)) for name, w in weights.items()),
            *map(_repr, run.extra_selectors),
        ]
    except _NewSettingError:
        return None
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]


def _repr(value: Any) -> str:
    if not is_dataclass(value):
        return repr(value)
    return f"{_name(value)}({', '.join(f'{name}={_repr(part)}' for name, part in _parts(value))})"


def _json(value: Any) -> Any:
    if not is_dataclass(value):
        return value
    return {"kind": KINDS[_name(value)], **{name: _json(part) for name, part in _parts(value)}}


def _name(value: Any) -> str:
    """The name that the value's class had."""
    today = type(value).__qualname__
    return next((old for old, new in RENAMED_KINDS.items() if new == today), today)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The fields of version 0.1 with their values, in its order; all fields of a class it did not have."""
    name = _name(value)
    known = {f.name: f for f in fields(value)}
    if name not in FIELDS:
        yield from ((field, getattr(value, field)) for field in known)
        return
    renamed = RENAMED_FIELDS.get(type(value).__name__, {})
    names = {old: renamed.get(old, old) for old in FIELDS[name].split()}
    for field in known.keys() - set(names.values()):
        f = known[field]
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        if getattr(value, field) != default:
            raise _NewSettingError
    for old, today in names.items():
        yield old, getattr(value, today) if today in known else REMOVED[name][old]
