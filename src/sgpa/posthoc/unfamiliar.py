"""Rows made unfamiliar on purpose, from the rows of a batch: novelty learns from them which views count.

- Token ids: words drawn from all rows, half of the words replaced by such, the reversed order, the second
  half of another row, and one word again and again. The first and the last token of a row stay, because they
  are often special.
- Images: the mean of two, sixteen tiles in random order, noise, blur, little contrast.
- Other sequences of numbers: the mean of two, the reversed order, noise.
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from sgpa.posthoc.calls import Call

TILES = 4  # along a side


def made_unfamiliar(call: Call) -> list[Call]:
    """The batch changed in several ways; nothing where it has a single row, or no inputs of a known kind."""
    name, x = _inputs(call)
    if x is None or len(x) < 2 or call.options.get("past_key_values") is not None:
        return []
    generator = torch.Generator().manual_seed(0)
    if x.ndim == 2:
        known = None if call.padding is None or call.padding.shape != x.shape else call.padding
        changes = _of_tokens(x, _inner(x, known), generator)
    elif x.ndim == 4:
        changes = [_as_type(image, x.dtype) for image in _of_images(x.float(), generator)]
    else:
        changes = _of_numbers(x, generator)
    made = []
    for changed in changes:
        if isinstance(name, int):
            made.append(replace(call, args=(*call.args[:name], changed, *call.args[name + 1 :])))
        else:
            made.append(replace(call, options=call.options | {name: changed}))
    return made


def _inputs(call: Call) -> tuple[str | int, Tensor | None]:
    """The first argument of a known kind: token ids [B, T], images [B, C, h, w] or sequences [B, T, F].

    Images are numbers of any scale, or bytes.
    """
    named: list[tuple[str | int, object]] = [*enumerate(call.args), *call.options.items()]
    for name, x in named:
        if isinstance(x, Tensor) and "mask" not in str(name) and "type_ids" not in str(name):
            whole = x.dtype in (torch.int64, torch.int32) and x.ndim == 2
            image = x.ndim == 4 and (x.is_floating_point() or x.dtype == torch.uint8)
            if whole or image or (x.is_floating_point() and x.ndim == 3):
                return name, x
    return 0, None


def _inner(ids: Tensor, padding: Tensor | None) -> Tensor:
    """True at real tokens that are neither the first nor the last of their row, [B, T]."""
    real = torch.ones_like(ids, dtype=torch.bool) if padding is None else ~padding
    before, after = real.cumsum(1), real.flip(1).cumsum(1).flip(1)
    return real & (before > 1) & (after > 1)


def _of_tokens(ids: Tensor, inner: Tensor, generator: torch.Generator) -> list[Tensor]:
    pool = ids[inner]
    if not len(pool):
        return []

    def draw() -> Tensor:
        index = torch.randint(len(pool), ids.shape, generator=generator)
        return pool[index.to(ids.device)]

    half = (torch.rand(ids.shape, generator=generator) < 0.5).to(ids.device)
    place = inner.cumsum(1)  # 1, 2, ... at inner tokens                       [B, T]
    count = inner.sum(1, keepdim=True)
    first = inner.float().argmax(1, keepdim=True)
    backwards = ids.gather(1, (first + count - place).clamp(0, ids.shape[1] - 1))
    other, both = ids.roll(1, 0), inner & inner.roll(1, 0)
    return [
        torch.where(inner, draw(), ids),
        torch.where(inner & half, draw(), ids),
        torch.where(inner, backwards, ids),
        torch.where(both & (2 * place > count), other, ids),
        torch.where(inner, draw()[:, :1], ids),
    ]


def _of_images(x: Tensor, generator: torch.Generator) -> list[Tensor]:
    noise = torch.randn(x.shape, generator=generator).to(x)
    mean = x.mean((2, 3), keepdim=True)
    changed = [0.5 * (x + x.roll(1, 0)), x + 0.5 * x.std() * noise, mean + 0.2 * (x - mean)]
    height, width = x.shape[2:]
    if min(height, width) >= 2 * TILES:
        small = avg_pool2d(x, max(2, min(height, width) // 8))
        changed.append(interpolate(small, (height, width), mode="bilinear"))
        changed.append(shuffled_tiles(x, generator))
    return changed


def _as_type(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Images as the model reads them: numbers of its type, or bytes."""
    return x.round().clamp(0, 255).to(dtype) if dtype == torch.uint8 else x.to(dtype)


def shuffled_tiles(x: Tensor, generator: torch.Generator) -> Tensor:
    """Sixteen tiles in random order; what the tiles do not cover at the right and below stays."""
    h, w = (side // TILES for side in x.shape[2:])
    inside = x[..., : TILES * h, : TILES * w].unflatten(-1, (TILES, w)).unflatten(-3, (TILES, h))
    tiles = inside.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)  # [B, 16, C, h, w]
    order = torch.rand(len(x), TILES**2, generator=generator).argsort(1).to(x.device)
    tiles = tiles[torch.arange(len(x), device=x.device).unsqueeze(1), order]
    back = tiles.unflatten(1, (TILES, TILES)).permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)
    changed = x.clone()
    changed[..., : TILES * h, : TILES * w] = back
    return changed


def _of_numbers(x: Tensor, generator: torch.Generator) -> list[Tensor]:
    noise = torch.randn(x.shape, generator=generator).to(x)
    return [0.5 * (x + x.roll(1, 0)), x.flip(1), x + x.std() * noise]
