"""What `fit` accepts as data: arrays, lists and tensors, checked and converted before anything is trained."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sgpa.core.errors import InputError, check_fields
from sgpa.core.inputs import Graphs, Inputs, Words
from sgpa.data import Dataset
from sgpa.models import GraphConfig, PatchConfig, TokenConfig, WordsConfig
from sgpa.models.config.embedding import EmbeddingConfig
from sgpa.training.defaults import MIN_ROWS, patch_size

Classes = tuple[str, ...]
KINDS = "images [N, C, H, W], token ids [N, T] of an integer type, Graphs or Words"


def as_inputs(inputs: Any, name: str = "inputs") -> Inputs:
    """Inputs as tensors, `Graphs` or `Words`; numbers become float32, uint8 or int64."""
    if isinstance(inputs, Graphs | Words):
        return inputs
    x = _tensor(inputs, name)
    if x.dtype in (torch.float64, torch.float16, torch.bfloat16):
        return x.float()
    return x.long() if x.dtype in (torch.int8, torch.int16, torch.int32) else x


def as_targets(targets: Any, name: str = "targets") -> tuple[Tensor, Classes]:
    """Classes [N] int64 or values [N] float32, and the names of the classes where labels are words."""
    if _are_words(targets):
        words = [str(word) for word in np.asarray(targets).reshape(-1)]
        classes = tuple(sorted(set(words)))
        index = {word: i for i, word in enumerate(classes)}
        return torch.tensor([index[word] for word in words]), classes
    y = _tensor(targets, name)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise InputError(f"fit: {name} has shape {list(y.shape)} (allowed: [N] or [N, 1])")
    return (y.float() if y.is_floating_point() else y.long()), ()


def check_rows(train: Dataset, held_out: Dataset, *, split: bool, regression: bool) -> None:
    """Raise unless there are enough rows and, for classes, two of them."""
    rows = len(train) + len(held_out)
    if split and rows < MIN_ROWS:
        raise InputError(f"fit: {rows} rows are too few; at least {MIN_ROWS} are needed")
    if len(train) < 2:
        raise InputError(f"fit: {len(train)} training row is too few; at least 2 are needed")
    if not regression and bool((train.targets == train.targets[0]).all()):
        raise InputError(
            f"fit: all {len(train)} training rows have label {int(train.targets[0])}; "
            "at least two classes are needed"
        )


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
    if inputs.ndim == 2 and not inputs.is_floating_point():
        return TokenConfig(
            vocabulary=max(2, int(inputs.max()) + 1), max_tokens=inputs.shape[1], scale=0.3, drop=0.3
        )
    if inputs.ndim != 4:
        more = "; add the channel: images[:, None]" if inputs.ndim == 3 else ""
        raise InputError(
            f"fit: inputs have shape {list(inputs.shape)} and type {inputs.dtype} (allowed: {KINDS}){more}"
        )
    channels, size = inputs.shape[1:3]
    square = inputs.shape[2] == inputs.shape[3]
    check_fields("fit", [("inputs", list(inputs.shape), square, "square images [N, C, H, H]")])
    pixels = inputs.double() / (255 if inputs.dtype == torch.uint8 else 1)
    return PatchConfig(
        image_size=size,
        channels=channels,
        patch_size=patch_size(size),
        mean=tuple(pixels.mean((0, 2, 3)).tolist()),
        std=tuple(pixels.std((0, 2, 3)).clamp_min(1e-3).tolist()),
        normalise_floats=inputs.is_floating_point(),
    )


def _are_words(targets: Any) -> bool:
    if isinstance(targets, Tensor):
        return False
    if isinstance(targets, np.ndarray):
        return targets.dtype.kind in "USO" and targets.size > 0 and isinstance(targets.reshape(-1)[0], str)
    return isinstance(targets, Sequence) and len(targets) > 0 and isinstance(targets[0], str)


def _tensor(values: Any, name: str) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach()
    try:
        return torch.as_tensor(np.asarray(values))
    except (TypeError, ValueError):
        kind = type(values).__name__
        raise InputError(
            f"fit: {name} of type {kind} are no array (allowed: tensors, arrays, lists of equal rows)"
        ) from None
