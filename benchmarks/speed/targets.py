"""Ratios of measurements within one run, and the targets they are compared with."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.naive_sgpa import NAME
from benchmarks.speed.record import Row
from sgpa.experiments.timing import BASE, DROPOUT, SGPA, SOFTMAX


@dataclass(frozen=True)
class Speed:
    """All measurements."""

    rows: tuple[Row, ...]

    def find(self, part: str, name: str, tokens: int | None = None, keys: int | None = None) -> Row | None:
        """The row of a method; `tokens` and `keys` choose among several sizes."""
        wanted = [row for row in self.of(part) if row.name == name]
        fitting = (r for r in wanted if tokens in (None, r.tokens) and keys in (None, r.num_global))
        return next(fitting, None)

    def of(self, part: str) -> list[Row]:
        """The rows of a part."""
        return [row for row in self.rows if row.part == part]

    def ratio(
        self, part: str, name: str, base: str, field: str, tokens: int | None = None, keys: int | None = None
    ) -> float | None:
        """`name` divided by `base`; None if one is missing or they come from different runs."""
        row, other = self.find(part, name, tokens, keys), self.find(part, base, tokens, keys)
        if row is None or other is None or row.run != other.run:
            return None
        above, below = getattr(row, field), getattr(other, field)
        return above / below if above is not None and below is not None else None


@dataclass(frozen=True)
class Target:
    """A number that should be at most `bound`."""

    text: str
    bound: float
    value: Callable[[Speed], float | None]
    unit: str = ""

    def verdict(self, speed: Speed) -> str:
        """met, missed or not measured."""
        value = self.value(speed)
        if value is None:
            return "not measured"
        return "met" if value <= self.bound else "**missed**"


def _times(part: str, base: str, field: str, tokens: int | None = None) -> Callable[[Speed], float | None]:
    """SGPA divided by the base."""
    return lambda speed: speed.ratio(part, SGPA, base, field, tokens)


def _milliseconds(field: str) -> Callable[[Speed], float | None]:
    """SGPA at the sizes of the CIFAR-10 model."""

    def value(speed: Speed) -> float | None:
        row = speed.find("model", SGPA)
        seconds = None if row is None else getattr(row, field)
        return None if seconds is None else 1e3 * seconds

    return value


TARGETS = (
    Target("step, SGPA / MLE with kernel attention", 1.5, _times("model", BASE, "step")),
    Target("step, SGPA", 2.5, _milliseconds("step"), " ms"),
    Target("prediction, SGPA / MC dropout", 1.5, _times("model", DROPOUT, "predict")),
    Target("prediction, SGPA", 5.5, _milliseconds("predict"), " ms"),
    Target("step at T = 2,048, SGPA / MLE with softmax", 2.5, _times("tokens", SOFTMAX, "step", 2048)),
    Target("memory at T = 8,192, SGPA / MLE with softmax", 2.0, _times("tokens", SOFTMAX, "peak", 8192)),
    Target("step on a CPU, SGPA / MLE with kernel attention", 2.5, _times("cpu", BASE, "step")),
    Target("step on a CPU, SGPA / naive SGPA", 0.5, _times("cpu", NAME, "step")),
)
