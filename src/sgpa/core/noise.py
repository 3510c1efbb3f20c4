"""Where the random numbers of a forward pass come from.

Every random operation of a model asks here, so that a pass can be recorded and played back: a step that is
replayed as a CUDA graph draws what the plain step would have drawn, and a model whose batches are split over
devices draws what it would have drawn on one.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Protocol
from zlib import crc32

import torch
from torch import Tensor, nn

from sgpa.core.errors import Check, check_fields
from sgpa.core.inputs import Inputs, row_bytes

LARGEST_SEED = 2**32 - 1
MAX_SAMPLES = 1_000_000  # of one prediction: more are a mistake


def check_seed(seed: int) -> None:
    """Raise unless all generators that a seed goes to accept it."""
    fine = isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed <= LARGEST_SEED
    check_fields("random numbers", [("seed", seed, fine, f"a whole number, 0 to {LARGEST_SEED}")])


def samples_check(samples: int) -> Check:
    """The check of a number of samples, for `check_fields`."""
    return "samples", samples, 1 <= samples <= MAX_SAMPLES, f"1 to {MAX_SAMPLES}"


@dataclass(frozen=True)
class Draw:
    """One request for random numbers: standard normal, or 1 with probability `keep` and else 0.

    `rows` is the dimension that counts the sequences of a batch, or S copies of the batch one after the
    other; None where all sequences share the numbers.
    """

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    keep: float | None = None
    rows: int | None = None

    def copies_of(self, rows: int) -> int:
        """S, where the numbers are those of S copies of a batch of so many rows."""
        assert self.rows is not None
        copies, rest = divmod(self.shape[self.rows], rows)
        assert rest == 0
        return copies

    def with_rows(self, rows: int) -> "Draw":
        """The same request for another number of rows."""
        assert self.rows is not None
        return replace(self, shape=torch.Size((*self.shape[: self.rows], rows, *self.shape[self.rows + 1 :])))

    def into(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Fill x with fresh numbers."""
        if self.keep is None:
            return x.normal_(generator=generator)
        return x.bernoulli_(self.keep, generator=generator)

    def fresh(self, generator: torch.Generator | None = None) -> Tensor:
        """New numbers, by default from torch's own generator."""
        return self.into(torch.empty(self.shape, dtype=self.dtype, device=self.device), generator)


class Source(Protocol):
    """Where random numbers come from."""

    def take(self, draw: Draw) -> Tensor:
        """The numbers of one request."""
        ...


@dataclass(frozen=True)
class Generated:
    """Draws from a generator of one's own."""

    generator: torch.Generator

    def take(self, draw: Draw) -> Tensor:
        """Fresh numbers."""
        return draw.fresh(self.generator)


@dataclass
class Recording:
    """Draws fresh numbers, and keeps the list of requests."""

    draws: list[Draw] = field(default_factory=list)

    def take(self, draw: Draw) -> Tensor:
        """Fresh numbers."""
        self.draws.append(draw)
        return draw.fresh()


@dataclass
class Playback:
    """Returns numbers that were drawn before, in order."""

    numbers: Sequence[Tensor]
    at: int = 0

    def take(self, draw: Draw) -> Tensor:
        """The next numbers."""
        numbers = self.numbers[self.at]
        assert numbers.shape == draw.shape
        self.at += 1
        return numbers


@dataclass(frozen=True)
class Shard:
    """Draws for a whole batch of `of` sequences; returns the numbers of those from `start` to `stop`."""

    start: int
    stop: int
    of: int

    def take(self, draw: Draw) -> Tensor:
        """Fresh numbers of the share; the generator moves on as for the whole batch."""
        if draw.rows is None:
            return draw.fresh()
        at, mine = draw.rows, self.stop - self.start
        copies = draw.copies_of(mine)
        numbers = draw.with_rows(copies * self.of).fresh().unflatten(at, (copies, self.of))
        return numbers.narrow(at + 1, self.start, mine).flatten(at, at + 1)


@dataclass
class ByRow:
    """Draws the numbers of every row from generators of its own.

    They follow from the seed, the row's content and the place of the request, so that the prediction of a row
    does not depend on the other rows of a batch.
    """

    seed: int
    contents: Sequence[int]  # a checksum of every row of the batch
    requests: int = 0

    def take(self, draw: Draw) -> Tensor:
        """The numbers of a batch of these rows, or of S copies of it."""
        self.requests += 1
        if draw.rows is None:
            return self._numbers(draw, 0)
        at, one = draw.rows, draw.with_rows(draw.copies_of(len(self.contents)))
        return torch.stack([self._numbers(one, row) for row in self.contents], at + 1).flatten(at, at + 1)

    def _numbers(self, draw: Draw, row: int) -> Tensor:
        mixed = crc32(struct.pack("<QQQ", self.seed, row, self.requests))
        return draw.fresh(torch.Generator(draw.device).manual_seed(mixed))


def contents(rows: Inputs) -> list[int]:
    """A checksum of every row of a batch."""
    return [crc32(b"".join(row)) for row in row_bytes(rows)]


_source: ContextVar[Source | None] = ContextVar("source", default=None)  # every thread has its own


def sharded() -> bool:
    """Whether a pass sees only a share of a batch.

    Padding must then stay as it is in the whole batch, or numbers would be drawn for other shapes.
    """
    return isinstance(_source.get(), Shard)


@contextmanager
def source(numbers: Source) -> Iterator[None]:
    """Inside the block all random numbers of a model come from `numbers`, in this thread alone."""
    token = _source.set(numbers)
    try:
        yield
    finally:
        _source.reset(token)


def seeded(seed: int, device: torch.device) -> AbstractContextManager[None]:
    """A block whose random numbers follow from a seed; torch's own generators are not used.

    The numbers are those that `torch.manual_seed` would give.
    """
    return source(Generated(torch.Generator(device).manual_seed(seed)))


_by_row: ContextVar[bool] = ContextVar("by_row", default=False)


def drawn_by_row() -> bool:
    """Whether predictions draw by `ByRow`."""
    return _by_row.get()


@contextmanager
def by_row() -> Iterator[None]:
    """Inside the block, `Transformer.draw` predicts every row as if it were alone."""
    token = _by_row.set(True)
    try:
        yield
    finally:
        _by_row.reset(token)


def _ask(draw: Draw) -> Tensor:
    numbers = _source.get()
    return draw.fresh() if numbers is None else numbers.take(draw)


def normal(shape: Sequence[int], like: Tensor, *, rows: int | None) -> Tensor:
    """Independent standard normal numbers with the type and device of `like`; `rows` as in `Draw`."""
    return _ask(Draw(torch.Size(shape), like.dtype, like.device, None, rows))


def bernoulli(keep: float, shape: Sequence[int], like: Tensor, *, rows: int | None) -> Tensor:
    """1 with probability `keep`, else 0, independently, like `like`; `rows` as in `Draw`."""
    return _ask(Draw(torch.Size(shape), like.dtype, like.device, keep, rows))


class Dropout(nn.Dropout):
    """`nn.Dropout` whose masks come from the current source."""

    @property
    def active(self) -> bool:
        """Whether a pass drops anything."""
        return self.training and self.p > 0

    def forward(self, x: Tensor) -> Tensor:
        """Set entries of x [..., B, T, E] to zero with probability p and scale the others by 1 / (1 - p)."""
        if not self.active:
            return x
        return x * (bernoulli(1 - self.p, x.shape, x, rows=max(0, x.ndim - 3)) / (1 - self.p))


def dropping(module: nn.Module) -> bool:
    """Whether any dropout inside is active."""
    return any(isinstance(m, Dropout) and m.active for m in module.modules())
