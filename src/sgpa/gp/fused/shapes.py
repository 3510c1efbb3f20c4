"""Sizes of tiles, and how the Triton kernels are launched."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

try:  # no Triton, no fast path: the plain references are used
    from triton import cdiv, next_power_of_2
    from triton.runtime.errors import OutOfResources

    from sgpa.gp.fused.tiles import summed

    TRITON = True
except ImportError:
    TRITON = False

TOKENS = 64  # of a tile
WIDTH = 64  # the widest head, and the most inducing points, a tile takes
SUMMED = 4096  # numbers that a program of a sum reads


def padded(n: int) -> int:
    """The power of two that a tile uses for n: 16 at least, as matrix units want it."""
    return max(16, next_power_of_2(n))


def tiles(T: int) -> int:
    """Tiles of a sequence of T tokens."""
    return int(cdiv(T, TOKENS))


def launch(kernel: Any, *grid: int) -> Callable[..., None]:
    """A function that runs the kernel on a grid.

    A GPU with too little shared memory for the pipelined loads of a kernel runs it with one stage.
    """

    def run(*arguments: Any, **options: Any) -> None:
        key = (kernel, *sorted(options.items()))
        if key not in _one_stage:
            try:
                kernel[grid](*arguments, **options)
                return
            except OutOfResources:
                _one_stage.add(key)
        kernel[grid](*arguments, **options | {"num_stages": 1})

    return run


_one_stage: set[tuple[Any, ...]] = set()  # kernels, with their options, that did not fit


def sum_parts(part: Tensor) -> Tensor:
    """The sum over the first dimension: of the partial results of several programs."""
    out = part.new_empty(part.shape[1:])
    rows, size = padded(len(part)), out.numel()
    columns = max(1, SUMMED // rows)
    launch(summed, cdiv(size, columns))(part, out, len(part), size, SS=rows, CC=columns)
    return out


def dense(x: Tensor) -> Tensor:
    """x, copied only where the entries of a row are not next to each other."""
    return x if x.stride(-1) == 1 else x.contiguous()


def by_token(x: Tensor, B: int, H: int, T: int, D: int) -> Tensor:
    """An empty [B, H, T, D] whose memory is [B, T, H, D], the order in which W_o reads it."""
    return x.new_empty(B, T, H, D).transpose(1, 2)


def strides(*tensors: Tensor) -> list[int]:
    """The strides of sequences, heads and tokens."""
    return [s for x in tensors for s in x.stride()[:3]]
