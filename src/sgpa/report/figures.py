"""Figures of results: metric bars, robustness curves, reliability diagrams and entropy histograms.

Each function takes aggregated data and returns a `Figure`; none touches pyplot's global state.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from sgpa.metrics import Reliability
from sgpa.report.curves import Histogram
from sgpa.report.names import Key, key_order, labels, metric, split_shift
from sgpa.report.style import INK, PAPER, SOFT, blank, legend, looks, styled
from sgpa.report.tables import Cells, Table


def panels(figure: Figure, count: int, columns: int = 2, **options: Any) -> list[Any]:
    """`count` axes in reading order on a grid; the rest of the last row stays empty."""
    columns = min(columns, count)
    grid = figure.subplots(-(-count // columns), columns, squeeze=False, **options)
    axes = list(grid.flat)
    for spare in axes[count:]:
        spare.remove()
    return axes[:count]


@styled
def metric_bars(table: Table) -> Figure:
    """One panel per metric, one bar per method, value and standard error written beside the bar."""
    names, style = labels(table.rows), looks(table.rows)
    columns = [column for column in table.columns if any((row, column) in table.cells for row in table.rows)]
    height = 0.7 + 0.34 * len(table.rows)
    figure = blank(height * -(-len(columns) // 2) + 0.1)
    for axes, column in zip(panels(figure, len(columns)), columns, strict=True):
        shape = metric(column.metric)
        top = 0.0
        for place, row in enumerate(table.rows):
            cell = table.cells.get((row, column))
            if cell is None:
                axes.text(0, place, " not measured", va="center", color=SOFT)
                continue
            value, error = cell.mean * shape.scale, (cell.error or 0.0) * shape.scale
            axes.barh(place, value, height=0.66, linewidth=0.8, **style[row].bar)
            if cell.error is not None:
                axes.errorbar(value, place, xerr=error, color=INK, capsize=3, elinewidth=1.3, capthick=1.3)
            bold = "bold" if row in table.best(column) else "normal"
            axes.annotate(
                shape.text(cell.mean),
                (max(value, 0.0) + error, place),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                weight=bold,
            )
            top = max(top, value + error)
        axes.set(title=shape.heading, yticks=range(len(table.rows)), xticks=[])
        axes.set_yticklabels([names[row] for row in table.rows], color=INK)
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
        axes.invert_yaxis()
        axes.set_xlim(right=top * 1.32 or 1.0)  # room for the number
        axes.label_outer()
    return figure


@styled
def strength_curves(cells: Cells, family: str, metrics: Sequence[str]) -> Figure:
    """Metrics against the strength of one family of shifts, 0 being the clean test set; bands are ± 1 s.e."""
    points: dict[str, dict[Key, list[tuple[int, float, float]]]] = {name: {} for name in metrics}
    for (row, column), cell in cells.items():
        if column.metric not in points:
            continue
        named, strength = split_shift(column.shift)
        clean = column.evaluation == "in-distribution" and not column.shift
        if clean or (column.evaluation == "robustness" and named == family and strength is not None):
            scale = metric(column.metric).scale
            point = (strength or 0, cell.mean * scale, (cell.error or 0.0) * scale)
            points[column.metric].setdefault(row, []).append(point)
    rows = key_order(row for lines in points.values() for row in lines)
    names, style = labels(rows), looks(rows)
    figure = blank(2.3 * -(-len(metrics) // 2) + 0.45)
    drawn = panels(figure, len(metrics), sharex=True)
    for axes, name in zip(drawn, metrics, strict=True):
        for row in key_order(points[name]):
            x, y, e = np.array(sorted(points[name][row])).T
            axes.fill_between(x, y - e, y + e, color=style[row].colour, alpha=0.2, linewidth=0)
            axes.plot(x, y, label=names[row], **style[row].line)
        axes.set_title(metric(name).heading)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
        axes.tick_params(length=0, labelbottom=True)
    legend(figure, drawn)
    figure.supxlabel("shift strength (0 = clean test set)", fontsize=12, color=SOFT)
    return figure


@styled
def reliability_diagrams(pooled: Mapping[Key, Reliability]) -> Figure:
    """Accuracy against confidence per bin with ± 1 binomial s.e.; beneath, the share of answers per bin."""
    names, style = labels(pooled), looks(pooled)
    columns = min(2, len(pooled))
    rows = -(-len(pooled) // columns)
    figure = blank(3.75 * rows if columns == 2 else 4.6)
    cells = figure.add_gridspec(rows, columns)
    for place, (key, r) in enumerate(pooled.items()):
        inner = cells[place // columns, place % columns].subgridspec(
            2, 1, height_ratios=(4, 1.15), hspace=0.06
        )
        upper = figure.add_subplot(inner[0])
        lower = figure.add_subplot(inner[1], sharex=upper)
        look, kept = style[key], r.count > 0
        left, width = r.edges[:-1][kept], np.diff(r.edges)[kept]
        accuracy, confidence = r.accuracy[kept], r.confidence[kept]
        noise = np.sqrt(accuracy * (1 - accuracy) / r.count[kept])
        upper.bar(left, accuracy, width, align="edge", color=look.colour, alpha=0.22, edgecolor=PAPER)
        upper.plot([0, 1], [0, 1], color=SOFT, linestyle=(0, (2, 2)), linewidth=1.2)
        upper.errorbar(
            confidence,
            accuracy,
            noise,
            fmt=look.marker,
            color=look.colour,
            markerfacecolor=PAPER if look.hollow else look.colour,
            markersize=5.5,
            elinewidth=1.3,
            capsize=0,
        )
        upper.set(
            title=names[key], xlim=(0, 1), ylim=(0, 1.02), ylabel="accuracy" if not place % columns else ""
        )
        upper.text(0.03, 0.95, "under-confident", va="top", color=SOFT, fontsize=10.5)
        upper.text(0.97, 0.03, "over-confident", ha="right", color=SOFT, fontsize=10.5)
        upper.tick_params(length=0, labelbottom=False)
        share = r.count / r.count.sum()
        lower.bar(r.edges[:-1], share, np.diff(r.edges), align="edge", linewidth=0.8, **look.bar)
        lower.set(
            xlabel="confidence", ylabel="share" if not place % columns else "", ylim=(0, 1), yticks=[0, 1]
        )
        lower.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        lower.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        lower.tick_params(length=0)
    return figure


@styled
def entropy_histograms(
    inside: Mapping[Key, Histogram], outside: Mapping[Key, Histogram], shift: str
) -> Figure:
    """Predictive entropy of test inputs against that of unfamiliar inputs `shift`, one panel per method."""
    keys = [key for key in inside if key in outside]
    names, style = labels(keys), looks(keys)
    figure = blank(2.5 * -(-len(keys) // 2) + 0.75)
    drawn = panels(figure, len(keys), sharex=True, sharey=True)
    for axes, key in zip(drawn, keys, strict=True):
        known, strange, colour = inside[key], outside[key], style[key].colour
        axes.stairs(known.share, known.edges, fill=True, color=colour, alpha=0.55)
        axes.stairs(
            strange.share, strange.edges, fill=True, facecolor="none", hatch="////", edgecolor="#b9c0c8"
        )
        axes.stairs(strange.share, strange.edges, color=INK, linewidth=1.5)
        axes.set_title(names[key])
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
        axes.tick_params(length=0, labelbottom=True)
        axes.set_ylim(bottom=0)
        axes.margins(x=0.01)
    shown = [_swatch("#8f98a3", None, "test inputs"), _swatch("none", "////", shift)]
    figure.legend(handles=shown, loc="outside upper left", ncols=2)
    figure.supxlabel("entropy of the prediction (nats)", fontsize=12, color=SOFT)
    figure.supylabel("share of inputs", fontsize=12, color=SOFT)
    return figure


def _swatch(face: str, hatch: str | None, label: str) -> Any:
    return Patch(facecolor=face, edgecolor=INK if hatch else face, hatch=hatch, label=label, linewidth=1.2)
