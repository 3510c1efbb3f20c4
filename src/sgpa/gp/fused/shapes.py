"""Sizes of tiles, and how models side by side (`torch.vmap`) become more heads."""

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


def over(kernel: Any, *grid: int) -> Callable[..., None]:
    """The kernel on a grid; where a GPU has too little shared memory, with fewer loads under way at once."""

    def launch(*arguments: Any, **options: Any) -> None:
        key = (kernel, *sorted(options.items()))
        if key not in _modest:
            try:
                kernel[grid](*arguments, **options)
                return
            except OutOfResources:
                _modest.add(key)
        kernel[grid](*arguments, **options | {"num_stages": 1})

    return launch


_modest: set[tuple[Any, ...]] = set()


def together(part: Tensor) -> Tensor:
    """The sum over the first dimension, of shares that programs have left."""
    out = part.new_empty(part.shape[1:])
    rows, size = padded(len(part)), out.numel()
    columns = max(1, SUMMED // rows)
    over(summed, cdiv(size, columns))(part, out, len(part), size, SS=rows, CC=columns)
    return out


def dense(x: Tensor) -> Tensor:
    """x, copied only where the entries of a row are not next to each other."""
    return x if x.stride(-1) == 1 else x.contiguous()


def by_token(x: Tensor, B: int, H: int, T: int, D: int) -> Tensor:
    """Room for [B, H, T, D] with the heads of a token side by side, as the next product reads them."""
    return x.new_empty(B, T, H, D).transpose(1, 2)


def steps(*tensors: Tensor) -> list[int]:
    """The strides of sequences, heads and tokens."""
    return [s for x in tensors for s in x.stride()[:3]]


HEADS = {
    "h": 0,
    "b": 1,
    "p": 3,
}  # which dimension is that of the heads, in [H, ..], [B, H, ..], [B, T, 2, H, D]


def side_by_side(operator: Callable[..., Any], given: str, returned: str) -> Callable[..., Any]:
    """The vmap rule of an operator: models side by side are more heads.

    One letter for each argument and each result: a key of `HEADS`, or - for no tensor.
    """

    def rule(info: Any, dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        E = info.batch_size
        found = operator(*(_fold(x, d, E, kind) for x, d, kind in zip(inputs, dims, given, strict=True)))
        results = [found] if isinstance(found, Tensor) else found
        at = [HEADS[kind] for kind in returned]
        apart = [x.unflatten(d, (E, -1)) for x, d in zip(results, at, strict=True)]
        return (apart[0], at[0]) if isinstance(found, Tensor) else (tuple(apart), tuple(at))

    return rule


def _fold(x: Any, dim: int | None, size: int, kind: str) -> Any:
    if kind == "-":
        return x
    x = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
    return x.movedim(0, HEADS[kind]).flatten(HEADS[kind], HEADS[kind] + 1)
