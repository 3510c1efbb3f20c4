"""Time and memory of a prediction with every method, relative to one plain pass over the same rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from mmap import PAGESIZE, mmap
from typing import Any

from sgpa.core.devices import forget_peak, now, peak

ROUNDS = 5
Predict = Callable[[Any], object]  # one batch


@dataclass(frozen=True)
class Cost:
    """What a prediction costs; 1 is the model as it is."""

    time: float
    memory: float | None  # peak of the process, or of the GPU; None where the system does not say


def measure_costs(
    predictors: Mapping[str, Predict],
    batches: Sequence[Any],
    device: str,
    on_round: Callable[[], None] = lambda: None,
    rounds: int = ROUNDS,
) -> dict[str, Cost]:
    """Run every predictor on the same batches, in turns; the first is the plain pass.

    All methods run once in every round. The shortest time of a method counts: other processes only lengthen
    it.
    """
    for predict in predictors.values():
        predict(batches[0])
    times: dict[str, list[float]] = {name: [] for name in predictors}
    highest: dict[str, int | None] = {}
    known = _peak_is_reset(device)
    for _ in range(rounds):
        for name, predict in predictors.items():
            forget_peak(device)
            started = now(device)
            for batch in batches:
                predict(batch)
            times[name].append(now(device) - started)
            highest[name] = peak(device) if known else None
        on_round()
    first = next(iter(predictors))

    def memory(name: str) -> float | None:
        own, plain = highest[name], highest[first]
        return None if own is None or plain is None else own / plain

    return {name: Cost(min(own) / min(times[first]), memory(name)) for name, own in times.items()}


def _peak_is_reset(device: str) -> bool:
    """Whether `forget_peak` has an effect on this system."""
    if device.startswith("cuda"):
        return True
    with mmap(-1, 2**26) as block:  # 64 MiB that come and go; a freed tensor could stay with the process
        for i in range(0, len(block), PAGESIZE):
            block[i] = 1
        high = peak(device)
    forget_peak(device)
    low = peak(device)
    return high is not None and low is not None and low < high - 2**25
