"""Tensors that were read from a file, checked before anything is computed with them."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from sgpa.core.errors import CheckpointError

Shape = Sequence[int | str]  # sizes; a letter is a size that must be the same wherever it occurs


def check_tensors(
    tensors: Mapping[str, Tensor], expected: Mapping[str, Shape], source: object
) -> dict[str, int]:
    """Raise unless all named tensors are there, with these shapes, as finite numbers.

    Args:
        tensors: What was read; further tensors are ignored.
        expected: The shape of each tensor, such as ("K", "E").
        source: The file, or whose tensors they are, for the error.

    Returns:
        The size of every letter.

    >>> import torch
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
        if given.is_complex() or not given.isfinite().all():
            raise CheckpointError(f"{source}: {name} has entries that are no finite numbers; it was damaged")
    return sizes
