"""Records and curves of an evaluation, and the cache of results that are already known."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from sgpa.core.inputs import Inputs


@dataclass(frozen=True)
class Subject:
    """The columns that all records and curves of one trained method share."""

    dataset: str
    attention: str  # sdp or kernel
    method: str
    seed: int
    augmentation: str = ""


@dataclass
class Results:
    """Records (one number each) and curves, in the order they were measured."""

    records: list[dict[str, Any]] = field(default_factory=list)
    curves: list[dict[str, Any]] = field(default_factory=list)

    def add(self, subject: Subject, evaluation: str, shift: str, values: dict[str, float]) -> None:
        """Append one record per metric."""
        columns = asdict(subject) | {"evaluation": evaluation, "shift": shift}
        self.records += [columns | {"metric": name, "value": value} for name, value in values.items()]

    def add_curve(self, subject: Subject, kind: str, shift: str, data: Any) -> None:
        """Append one curve."""
        self.curves.append(asdict(subject) | {"kind": kind, "shift": shift, "data": data})


@dataclass(frozen=True)
class OodSet:
    """Inputs that do not come from the training distribution.

    `reference_size` is the size of the set they were drawn from. AUPR depends on the share of OOD inputs,
    so it is also computed as if there were that many.
    """

    inputs: Inputs
    reference_size: int | None = None


class ResultCache(Protocol):
    """Called with the name of a part of an evaluation: returns its saved results, or measures and saves."""

    def __call__(self, part: str, measure: Callable[[], Results]) -> Results:
        """The results of the part."""
        ...


def no_cache(part: str, measure: Callable[[], Results]) -> Results:
    """A `ResultCache` that saves nothing."""
    del part
    return measure()
