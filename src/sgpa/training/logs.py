"""The log of a training: one JSON line for each epoch."""

import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from sgpa.core.arguments import fits
from sgpa.core.files import write_text

Line = dict[str, Any]
log = logging.getLogger(__name__)


class SavedLayer(TypedDict):
    """The diagnostics of a layer."""

    kl_g: float | None
    kl_a: float | None
    variance: float | None
    snr: float | None
    off_diagonal: float | None


class SavedLine(TypedDict):
    """A line of the log."""

    epoch: int
    nll: float
    kl_g: float
    kl_a: float
    seconds: NotRequired[float]
    peak_memory_bytes: NotRequired[float | None]
    numerics: NotRequired[dict[str, int]]
    layers: NotRequired[list[SavedLayer]]


def append(path: Path, line: Line) -> None:
    """Add a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def cut(path: Path, epoch: int) -> None:
    """Remove the lines after an epoch: those epochs are run again."""
    if path.exists():
        kept = [json.dumps(line) + "\n" for line in read_log(path) if line["epoch"] <= epoch]
        write_text(path, "".join(kept))


def read_log(path: Path, wanted: Any = SavedLine) -> Iterator[Line]:
    """The lines of a log up to the first that is incomplete or damaged; `wanted` is the type of a line."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, text in enumerate(lines, 1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        if not fits(line, wanted):
            if number < len(lines):
                log.warning("%s: line %d is damaged; it and the lines after it are left out", path, number)
            return
        yield line


def seconds(log: Path) -> float:
    """Training time, over all resumptions of a run."""
    return float(sum(line.get("seconds", 0.0) for line in read_log(log)))


def history(log: Path, validation: str = "validation") -> dict[str, Any]:
    """A log as columns; values that are measured every few epochs are null in between."""
    lines = list(read_log(log))
    layers = [line.get("layers") for line in lines]
    depth = max((len(each) for each in layers if each), default=0)
    names = ("kl_g", "kl_a", "variance", "snr", "off_diagonal")
    repairs: Counter[str] = Counter()
    for line in lines:
        repairs.update(line.get("numerics", {}))
    return {
        **({"numerics": dict(repairs)} if repairs else {}),
        **{key: [line[key] for line in lines] for key in ("epoch", "nll", "kl_g", "kl_a")},
        "validation": [line.get(validation, {}).get("nll") for line in lines],
        "layers": {
            name: [[layer[name] for layer in each] if each else [None] * depth for each in layers]
            for name in names
        },
    }


def in_words(line: Line, epochs: int) -> str:
    """A line of an epoch or a step as a progress bar shows it."""
    kl = f"  KL_g {line['kl_g']:.0f}" if line["kl_g"] else ""
    kl += f"  KL_a {line['kl_a']:.1f}" if line["kl_a"] else ""
    speed = f"  {1000 * line['step_seconds']:.0f} ms/step" if "step_seconds" in line else ""
    return f"epoch {line['epoch']}/{epochs}  nll {line['nll']:.3f}{kl}{speed}"
