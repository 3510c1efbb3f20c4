"""Where the random numbers of a forward pass come from.

Every random step of a model asks here, so that a pass can be recorded and played back: models that train
side by side then draw exactly what each would have drawn alone.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Draw:
    """One request for random numbers: standard normal, or 1 with probability `keep` and else 0."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    keep: float | None = None

    def into(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Fill x with fresh numbers."""
        if self.keep is None:
            return x.normal_(generator=generator)
        return x.bernoulli_(self.keep, generator=generator)

    def fresh(self) -> Tensor:
        """New numbers from torch's own generator."""
        return self.into(torch.empty(self.shape, dtype=self.dtype, device=self.device))


@dataclass
class Recording:
    """Draws freshly, and remembers what was asked for."""

    draws: list[Draw] = field(default_factory=list)

    def take(self, draw: Draw) -> Tensor:
        """Fresh numbers."""
        self.draws.append(draw)
        return draw.fresh()


@dataclass
class Playback:
    """Hands out numbers that were drawn before, in order."""

    numbers: Sequence[Tensor]
    at: int = 0

    def take(self, draw: Draw) -> Tensor:
        """The next numbers."""
        found = self.numbers[self.at]
        assert found.shape == draw.shape
        self.at += 1
        return found


_sources: list[Recording | Playback] = []  # the innermost block's comes last


@contextmanager
def source(numbers: Recording | Playback) -> Iterator[None]:
    """Inside the block all random numbers come from `numbers`."""
    _sources.append(numbers)
    try:
        yield
    finally:
        _sources.pop()


def _ask(draw: Draw) -> Tensor:
    return _sources[-1].take(draw) if _sources else draw.fresh()


def normal(shape: Sequence[int], like: Tensor) -> Tensor:
    """Independent standard normal numbers with the type and device of `like`."""
    return _ask(Draw(torch.Size(shape), like.dtype, like.device))


def bernoulli(keep: float, shape: Sequence[int], like: Tensor) -> Tensor:
    """1 with probability `keep`, else 0, independently, with the type and device of `like`."""
    return _ask(Draw(torch.Size(shape), like.dtype, like.device, keep))


class Dropout(nn.Dropout):
    """`nn.Dropout` whose masks come from here."""

    @property
    def active(self) -> bool:
        """Whether a pass drops anything now."""
        return self.training and self.p > 0

    def forward(self, x: Tensor) -> Tensor:
        """Set entries of x to zero with probability p and scale the others by 1 / (1 - p)."""
        return x * (bernoulli(1 - self.p, x.shape, x) / (1 - self.p)) if self.active else x
