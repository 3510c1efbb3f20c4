"""Cost against the length of the sequences and against the number of global keys, on log axes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from benchmarks.naive_sgpa import NAME
from benchmarks.speed.record import Row
from sgpa.experiments.timing import BASE, SGPA, SOFTMAX
from sgpa.report.figures.style import Look, blank, legend, looks, panels, styled

KEYS = {
    SOFTMAX: ("sdp", "mle"),
    BASE: ("kernel", "mle"),
    SGPA: ("kernel", "sgpa"),
    NAME: ("kernel", "naive"),
}
LOOKS: dict[str, Look] = dict(zip(KEYS, looks(KEYS.values()).values(), strict=True))
Measure = Callable[[Row], float | None]


def milliseconds(row: Row) -> float | None:
    """Milliseconds of a training step."""
    return None if row.step is None else 1e3 * row.step


def gigabytes(row: Row) -> float | None:
    """Peak GiB of device memory."""
    return None if row.peak is None else row.peak / 2**30


def drawn(rows: Sequence[Row]) -> bool:
    """Whether any row has a value to draw."""
    return any(row.part in ("tokens", "inducing") and row.step is not None for row in rows)


@styled
def draw(rows: Sequence[Row], path: Path) -> None:
    """Write the figure as SVG."""
    figure = blank(7.4)
    step, peak, keys = axes = panels(figure, 3, columns=1)
    lengths = [row for row in rows if row.part == "tokens"]
    _panel(step, lengths, lambda row: row.tokens, milliseconds)
    step.set(title="Training step by length of the sequences", xlabel="tokens T", ylabel="ms")
    _panel(peak, lengths, lambda row: row.tokens, gigabytes)
    peak.set(title="Peak memory by length of the sequences", xlabel="tokens T", ylabel="GiB")
    _panel(keys, [r for r in rows if r.part == "inducing"], lambda row: row.num_global, milliseconds)
    keys.set(title="Training step by number of global keys", xlabel="global keys per head", ylabel="ms")
    legend(figure, axes)
    figure.savefig(path, format="svg", metadata={"Date": None})


def _panel(axes: Any, rows: Sequence[Row], size: Callable[[Row], int], measure: Measure) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = sorted({size(row) for row in rows})
    axes.set_xticks(sizes, [f"{n:,}" for n in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.margins(y=0.12)
    for name, look in LOOKS.items():
        measured = [(size(row), measure(row)) for row in rows if row.name == name]
        points = sorted((x, y) for x, y in measured if y is not None)
        if points:
            axes.plot(*zip(*points, strict=True), label=name, **look.line)
