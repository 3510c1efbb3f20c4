"""Lines with bands: metrics against the strength of a shift, risk against coverage, training over epochs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sgpa.report.figures.curves import Floats, Line
from sgpa.report.figures.style import SOFT, Looks, blank, legend, panels, styled
from sgpa.report.names import (
    Key,
    attention_name,
    by_attention,
    key_order,
    labels,
    metric,
    sentence_case,
    split_shift,
)
from sgpa.report.tables import Cells

MOST_POINTS = 100  # of a line: more are not visible at this size
TITLE_WIDTH = 28  # characters that fit over a panel


@dataclass(frozen=True)
class Panel:
    """One set of axes: a title and a line per row."""

    title: str
    lines: Mapping[Key, Line]


@styled
def line_figure(
    shown: Sequence[Panel], style: Looks, xlabel: str, *, whole: bool = False, marks: int = 0
) -> Figure:
    """Panels with a line and a band of ± 1 standard error per row; one legend for all.

    Where both attentions have several rows, each panel is drawn for both, side by side on one scale.
    `whole` numbers on the x axis; `marks` is how many markers a line carries, 0 for one at every point.
    """
    keys = key_order(key for panel in shown for key in panel.lines)
    kinds = by_attention(keys)
    apart = len(kinds) > 1
    figure = blank(2.3 * (len(shown) if apart else -(-len(shown) // 2)) + 0.45)
    if apart:
        drawn = panels(figure, 2 * len(shown), sharex=True, sharey="row")
    else:
        drawn = panels(figure, len(shown), sharex=True)
    places = [(panel, kind) for panel in shown for kind in kinds]
    busy = max(map(len, kinds.values())) > 4
    for axes, (panel, kind) in zip(drawn, places, strict=True):
        names = labels(kinds[kind])
        own = [key for key in kinds[kind] if key in panel.lines]
        if not own:
            axes.set_axis_off()
            continue
        for key in own:
            _draw(axes, panel.lines[key], style, key, names[key], marks, busy)
        title = fill(panel.title, TITLE_WIDTH)
        above = f"{sentence_case(attention_name(kind))}\n" if apart and panel is shown[0] else ""
        axes.set_title(above + title, fontsize=11 if above or len(panel.title) > TITLE_WIDTH else None)
        fit_scale(axes, [line.mean for line in panel.lines.values()])
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=whole))
        axes.tick_params(length=0, labelbottom=True, labelleft=True)
        axes.margins(x=0.03)
    legend(figure, drawn)
    figure.supxlabel(xlabel, fontsize=12, color=SOFT)
    return figure


def _draw(axes: Any, line: Line, style: Looks, key: Key, name: str, marks: int, busy: bool) -> None:
    kept = thinned(len(line.x))
    x, y, e = line.x[kept], line.mean[kept], line.error[kept]
    axes.fill_between(x, y - e, y + e, color=style[key].colour, alpha=0.12 if busy else 0.2, linewidth=0)
    every = max(1, len(x) // marks) if marks else 1
    look = {**style[key].line, "markersize": 5, "linewidth": 1.5} if busy else style[key].line
    axes.plot(x, y, label=name, markevery=(every // 2 if marks else 0, every), **look)


def thinned(points: int) -> npt.NDArray[np.intp]:
    """Indices of the points that are drawn: first, last and evenly between, at most `MOST_POINTS`."""
    return np.unique(np.linspace(0, points - 1, min(points, MOST_POINTS)).round().astype(np.intp))


def fit_scale(axes: Any, values: Sequence[Floats]) -> None:
    """A logarithmic axis where positive values span more than a factor 50, else a linear one."""
    flat = np.concatenate([v.ravel() for v in values])
    flat = flat[np.isfinite(flat)]
    if flat.size and flat.min() > 0 and flat.max() > 50 * flat.min():
        axes.set_yscale("log")
        axes.minorticks_off()
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))


def strength_panels(cells: Cells, family: str, metrics: Sequence[str]) -> list[Panel]:
    """A panel per metric against the strength of one family of shifts; strength 0 is the clean test set."""
    points: dict[str, dict[Key, list[tuple[int, float, float]]]] = {name: {} for name in metrics}
    shifted = {row for row, column in cells if split_shift(column.shift)[0] == family}
    for (row, column), cell in cells.items():
        if column.metric not in points or row not in shifted:
            continue
        named, strength = split_shift(column.shift)
        clean = column.evaluation == "in-distribution" and not column.shift
        if clean or (column.evaluation == "robustness" and named == family and strength is not None):
            scale = metric(column.metric).scale
            point = (strength or 0, cell.mean * scale, (cell.error or 0.0) * scale)
            points[column.metric].setdefault(row, []).append(point)
    return [
        Panel(metric(name).heading, {row: Line(*np.array(sorted(p)).T) for row, p in points[name].items()})
        for name in metrics
    ]
