"""Random numbers of an image that do not depend on its batch."""

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

CHUNK = 100  # images whose random numbers come from one generator; another value changes all corrupted images


class Draws:
    """Random numbers for `rows` of one chunk.

    Every draw is made for all `CHUNK` images and cut to the rows that are present, so that an image gets the
    same numbers alone, in a batch and in the full set.
    """

    def __init__(self, key: str, rows: slice, device: torch.device) -> None:
        # The hash turns neighbouring keys into unrelated seeds, the same ones on every platform.
        digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
        self._generator = torch.Generator(device).manual_seed(int.from_bytes(digest, "big") >> 1)
        self._rows = rows
        self._device = device

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers, [n, *shape]."""
        return torch.randn(CHUNK, *shape, generator=self._generator, device=self._device)[self._rows]

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Uniform numbers in [low, high), [n, *shape]."""
        u = torch.rand(CHUNK, *shape, generator=self._generator, device=self._device)[self._rows]
        return low + (high - low) * u

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Uniform integers low, ..., high - 1, int64 [n, *shape]."""
        size = (CHUNK, *shape)
        return torch.randint(low, high, size, generator=self._generator, device=self._device)[self._rows]


def chunks(start: int, count: int, key: str, device: torch.device) -> Iterator[tuple[slice, Draws]]:
    """Images `start`, ..., `start + count - 1` of a set in pieces that end where chunks end.

    Yields where the piece is among the `count` images, and its random numbers.
    """
    at = start
    while at < start + count:
        number, first = divmod(at, CHUNK)
        last = min(CHUNK, start + count - number * CHUNK)
        piece = slice(at - start, at - start + last - first)
        yield piece, Draws(f"{key}/{number}", slice(first, last), device)
        at += last - first
