"""What `fit` accepts as data: arrays, lists and tensors, checked and converted before anything is trained."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sgpa.core.errors import InputError, check_fields
from sgpa.core.inputs import Features, Graphs, Inputs, Words, tensors_of
from sgpa.core.user_code import errors_of
from sgpa.data import Dataset
from sgpa.data.arrays import as_inputs
from sgpa.models import FeatureConfig, GraphConfig, PatchConfig, TokenConfig, WordsConfig
from sgpa.models.config.embedding import EmbeddingConfig
from sgpa.training.defaults import FEATURE_DROP, MIN_ROWS, group_for, patch_size
from sgpa.training.fit_split import held_out_split
from sgpa.training.fit_targets import Classes, as_targets, check_classes, check_labels, check_values

log = logging.getLogger(__name__)

KINDS = (
    "images [N, C, H, W], token ids [N, T] of an integer type, features [N, T, F] of a float type, "
    "Features, Graphs or Words"
)


def as_data(inputs: Any, targets: Any, *, regression: bool, name: str = "") -> tuple[Dataset, Classes]:
    """Rows with their targets as a `Dataset`, and the names of the classes where labels are words.

    Args:
        inputs: Inputs; or a `DataLoader` or a data set, which has targets of its own.
        targets: Of the inputs.
        regression: Targets of an integer type are values too.
        name: Put before "inputs" and "targets" in errors.
    """
    whole = None
    if isinstance(inputs, Dataset | torch.utils.data.DataLoader | torch.utils.data.Dataset):
        kind = type(inputs).__name__
        if targets is not None:
            raise InputError(f"fit: {name}inputs are a {kind}, which has targets; leave targets out")
        if isinstance(inputs, Dataset):
            whole, inputs, targets = inputs, inputs.inputs, inputs.targets
        else:
            inputs, targets = _collected(inputs)
    if targets is None:
        raise InputError(f"fit: {name}targets are missing; give fit(inputs, targets), or a DataLoader")
    y, classes = as_targets(targets, f"{name}targets")
    y = y.float() if regression else y
    if not y.is_floating_point() and y.numel() and int(y.min()) < 0:
        raise InputError(
            f"fit: {name}targets have label {int(y.min())} (allowed: 0 or more); number the classes from 0, "
            "as 0 and 1 for -1 and 1"
        )
    if isinstance(inputs, Sequence | np.ndarray) and len(inputs) and isinstance(inputs[0], str):
        raise InputError(
            f"fit: {name}inputs are strings, not arrays; texts and SMILES are read from tables, as in `sgpa "
            "train text FILE.csv`"
        )
    x = as_inputs(inputs, f"fit: {name}inputs")
    for part in (*tensors_of(x), y):
        if not part.is_meta and not part.isfinite().all():
            what = "targets" if part is y else "inputs"
            raise InputError(f"fit: {name}{what} have entries that are NaN or infinite")
    if not regression and not name:  # held-out rows may be few
        check_labels(y)
    return (Dataset(x, y) if whole is None else replace(whole, inputs=x, targets=y)), classes


def split(
    data: Dataset, validation: Any, seed: int, classes: Classes, directory: str | Path | None
) -> tuple[Dataset, Dataset]:
    """Rows to train on, and rows held out to select the epoch: a share of the rows, or data of their own."""
    if not isinstance(validation, float):
        if isinstance(validation, int | str) or validation is None:
            check_fields("fit", [("validation", validation, False, "between 0 and 1, or held-out data")])
        given = validation if isinstance(validation, tuple) else (validation, None)
        check_fields("fit", [("validation", validation, len(given) == 2, "a pair (inputs, targets)")])
        regression = data.targets.is_floating_point()
        held_out, words = as_data(*given, regression=regression, name="validation ")
        if words:
            known = [classes.index(word) if word in classes else -1 for word in words]
            check_fields("fit", [("validation", words, -1 not in known, f"classes {', '.join(classes)}")])
            held_out = replace(held_out, targets=torch.tensor(known)[held_out.targets])
        return data, held_out
    check_fields("fit", [("validation", validation, 0 < validation < 1, "between 0 and 1, or held-out data")])
    return held_out_split(data, validation, seed, None if directory is None else Path(directory))


def _collected(rows: Any) -> tuple[Any, Any]:
    """Inputs and targets of all batches of a `DataLoader`, or of all rows of a data set of torch."""
    batched = isinstance(rows, torch.utils.data.DataLoader)
    with errors_of(f"fit: {type(rows).__name__} cannot be read"):
        pairs = list(rows) if batched else [rows[i] for i in range(len(rows))]
    if not pairs or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise InputError(f"fit: {type(rows).__name__} does not give pairs (inputs, targets)")
    x, y = ([part for part, _ in pairs], [part for _, part in pairs])
    with errors_of(f"fit: {type(rows).__name__} does not give arrays of equal rows"):
        if batched:
            inputs, targets = (torch.cat([torch.as_tensor(part) for part in column]) for column in (x, y))
            return inputs, targets
        return torch.stack([torch.as_tensor(part) for part in x]), np.asarray([np.asarray(p) for p in y])


def check_rows(train: Dataset, held_out: Dataset, *, split: bool, classes: Classes = ()) -> None:
    """Raise unless there are enough rows and two different targets; `classes` are the names of classes."""
    rows = len(train) + len(held_out)
    if split and rows < MIN_ROWS:
        raise InputError(f"fit: {rows} rows are too few; at least {MIN_ROWS} are needed")
    if len(train) < 2:
        raise InputError(f"fit: {len(train)} training row is too few; at least 2 are needed")
    check_classes(train.targets, "fit: ", classes)
    check_values(train.targets, f"fit: all {len(train)} training rows")


def infer_embedding(inputs: Inputs) -> EmbeddingConfig:
    """The embedding that reads these inputs; images are standardised by their own mean and deviation.

    >>> infer_embedding(torch.zeros(20, 1, 8, 8, dtype=torch.uint8)).patch_size
    2
    """
    if isinstance(inputs, Graphs):
        return GraphConfig(
            node_types=int(inputs.nodes.max()) + 1,
            edge_types=max(0, int(inputs.edge_types.max())) + 1,
            identifier_width=inputs.identifiers.shape[-1],
            max_tokens=inputs.tokens,
            endpoint_types=True,
            undirected=inputs.undirected,
        )
    if isinstance(inputs, Words):
        layers, features = inputs.layers.shape[2:]
        return WordsConfig(
            vocabulary=max(2, int(inputs.ids.max()) + 1),
            features=features,
            layers=layers,
            max_tokens=inputs.tokens,
            drop=0.3,
        )
    if isinstance(inputs, Features):
        return FeatureConfig(width=inputs.values.shape[-1], max_tokens=inputs.tokens, drop=FEATURE_DROP)
    if inputs.ndim == 3 and inputs.is_floating_point() and inputs.shape[1] != inputs.shape[2]:
        return FeatureConfig(width=inputs.shape[2], max_tokens=inputs.shape[1], drop=FEATURE_DROP)
    if inputs.ndim == 2:
        _refuse_table(inputs)
        return TokenConfig(
            vocabulary=max(2, int(inputs.max()) + 1),
            max_tokens=inputs.shape[1],
            scale=0.3,
            drop=0.3,
            linear_start=True,
            group=group_for(inputs.shape[1]),
        )
    if inputs.ndim != 4:
        more = (
            "; add the channel of images: inputs[:, None]; wrap features: sgpa.Features.of(inputs)"
            if inputs.ndim == 3
            else ""
        )
        raise InputError(
            f"fit: inputs have shape {list(inputs.shape)} and type {inputs.dtype} (allowed: {KINDS}){more}"
        )
    channels, size = inputs.shape[1:3]
    square, allowed = inputs.shape[2] == inputs.shape[3], "square images [N, C, H, H]"
    if inputs.shape[3] in (1, 3, 4):
        allowed += "; these look like [N, H, W, C]: use inputs.transpose(0, 3, 1, 2), of tensors permute"
    check_fields("fit", [("inputs", list(inputs.shape), square, allowed)])
    pixels = inputs.double() / (255 if inputs.dtype == torch.uint8 else 1)
    return PatchConfig(
        image_size=size,
        channels=channels,
        patch_size=patch_size(size),
        mean=tuple(pixels.mean((0, 2, 3)).tolist()),
        std=tuple(pixels.std((0, 2, 3)).clamp_min(1e-3).tolist()),
        normalise_floats=inputs.is_floating_point(),
    )


def _refuse_table(inputs: Tensor) -> None:
    """Raise unless these rows of numbers are token ids, which are above 0 but for padding at the end.

    Without padding they may be a table all the same, which one line says.
    """
    read, advice = (
        f"fit: inputs have shape {list(inputs.shape)} and type {inputs.dtype}",
        "a table of numbers [N, F] is not supported: gradient boosting or a Gaussian process suits it better",
    )
    if inputs.is_floating_point() or inputs.dtype == torch.bool:
        raise InputError(f"{read}; {advice}")
    if bool((inputs < 0).any()) or bool(((inputs[:, :-1] == 0) & (inputs[:, 1:] != 0)).any()):
        raise InputError(
            f"{read}, with 0 or less before other numbers; token ids are 1 or more, and 0 fills up the end "
            f"of short rows; {advice}"
        )
    if bool(inputs.all()):  # tables of counts look the same
        log.warning(
            "fit: inputs %s of whole numbers are read as token ids, whose size means nothing; %s",
            list(inputs.shape),
            advice,
        )
