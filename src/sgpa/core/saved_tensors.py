"""Tensors that were read from a file, checked before anything is computed with them."""

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from sgpa.core.errors import CheckpointError

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WHOLE = (torch.uint8, torch.int32, torch.int64)
Shape = Sequence[int | str]  # sizes; a letter is a size that must be the same wherever it occurs


def check_tensors(
    tensors: Mapping[str, Tensor],
    expected: Mapping[str, Shape],
    source: object,
    whole: Collection[str] = (),
) -> dict[str, int]:
    """Raise unless all named tensors are there, with these shapes, as finite floating-point numbers.

    Args:
        tensors: What was read; further tensors are ignored.
        expected: The shape of each tensor, such as ("K", "E").
        source: The file, or whose tensors they are, for the error.
        whole: The names of those that hold whole numbers instead.

    Returns:
        The size of every letter.

    >>> check_tensors({"means": torch.zeros(3, 4), "centre": torch.zeros(5)},
    ...               {"means": ("K", "E"), "centre": ("E",)}, "novelty.safetensors")
    Traceback (most recent call last):
    sgpa.core.errors.CheckpointError: novelty.safetensors: centre has shape [5] (allowed: [E], E = 4)
    """
    sizes: dict[str, int] = {}
    for name, shape in expected.items():
        if name not in tensors:
            raise CheckpointError(f"{source}: {name} is missing; it was damaged or is of something else")
        given = tensors[name]
        wrong = len(given.shape) != len(shape) or any(
            size != (sizes.setdefault(letter, size) if isinstance(letter, str) else letter)
            for size, letter in zip(given.shape, shape, strict=True)
        )
        if wrong:
            known = "".join(f", {k} = {sizes[k]}" for k in shape if isinstance(k, str) and k in sizes)
            allowed = f"[{', '.join(map(str, shape))}]{known}"
            raise CheckpointError(f"{source}: {name} has shape {list(given.shape)} (allowed: {allowed})")
        if given.numel() == 0:
            raise CheckpointError(f"{source}: {name} is empty; it was damaged")
        kinds = WHOLE if name in whole else FLOATING
        if given.dtype not in kinds:
            raise CheckpointError(f"{source}: {name} holds {given.dtype} numbers; it was damaged")
        if not given.isfinite().all():
            raise CheckpointError(f"{source}: {name} has entries that are no finite numbers; it was damaged")
    return sizes


def check_statistics(scale: Tensor, held_out: Tensor, source: object) -> None:
    """Raise unless saved deviations are positive and saved scores of held-out rows ascend."""
    if not (scale > 0).all() or not (held_out.diff() >= 0).all():
        raise CheckpointError(f"{source}: scale or held_out are no statistics of rows; it was damaged")
