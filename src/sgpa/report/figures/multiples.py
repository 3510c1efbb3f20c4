"""Small multiples, one panel per method: reliability diagrams and entropy histograms."""

from collections.abc import Mapping
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from sgpa.evaluation.metrics import MCE_ANSWERS, Reliability
from sgpa.report.figures.curves import Histogram
from sgpa.report.figures.style import INK, PAPER, SOFT, Look, Looks, blank, panels, styled
from sgpa.report.names import Key, labels

FEW = 4  # up to so many panels are placed two in a row, more are placed three in a row
TITLE_WIDTH = 18  # characters that fit over one of three panels


@styled
def reliability_diagrams(pooled: Mapping[Key, Reliability], style: Looks) -> Figure:
    """Accuracy against confidence per bin with ± 1 binomial s.e.; below, the share of answers per bin.

    Bins of fewer than `MCE_ANSWERS` answers are grey crosses.
    """
    names = labels(pooled)
    small = len(pooled) > FEW
    columns = min(3 if small else 2, len(pooled))
    rows = -(-len(pooled) // columns)
    figure = blank(2.45 * rows + 0.2 if small else (3.75 * rows if columns == 2 else 4.6))
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[4, 1.15] * rows)
    top = np.ceil(10 * max((r.count / r.count.sum()).max() for r in pooled.values())) / 10
    for place, (key, r) in enumerate(pooled.items()):
        row, column = divmod(place, columns)
        upper = figure.add_subplot(grid[2 * row, column])
        lower = figure.add_subplot(grid[2 * row + 1, column], sharex=upper)
        _reliability(upper, r, style[key], small)
        _title(upper, names[key], small)
        if small:
            upper.text(0.05, 0.95, f"ECE {r.ece:.3f}", va="top", color=INK, fontsize=9.5)
        else:
            upper.text(0.03, 0.95, "under-confident", va="top", color=SOFT, fontsize=10.5)
            upper.text(0.97, 0.03, "over-confident", ha="right", color=SOFT, fontsize=10.5)
        share = r.count / r.count.sum()
        lower.bar(r.edges[:-1], share, np.diff(r.edges), align="edge", linewidth=0.8, **style[key].bar)
        lower.set(ylim=(0, top), yticks=[0, top])
        lower.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        lower.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        lower.tick_params(length=0)
        if column:
            for axes in (upper, lower):
                axes.tick_params(labelleft=False)
        else:
            upper.set_ylabel("accuracy")
            lower.set_ylabel("share")
        if place + columns >= len(pooled):
            lower.set_xlabel("confidence")
    return figure


def _title(axes: Any, name: str, small: bool) -> None:
    axes.set_title(fill(name, TITLE_WIDTH) if small else name, fontsize=11 if small else None)


def _reliability(axes: Any, r: Reliability, look: Look, small: bool) -> None:
    kept = r.count > 0
    left, width = r.edges[:-1][kept], np.diff(r.edges)[kept]
    accuracy, confidence = r.accuracy[kept], r.confidence[kept]
    noise = np.sqrt(accuracy * (1 - accuracy) / r.count[kept])
    sparse = r.count[kept] < MCE_ANSWERS
    axes.bar(left, accuracy, width, align="edge", color=look.colour, alpha=0.22, edgecolor=PAPER)
    axes.plot([0, 1], [0, 1], color=SOFT, linestyle=(0, (2, 2)), linewidth=1.2)
    if sparse.any():
        grey = {"color": "#aab1ba", "markersize": 4 if small else 5.5, "elinewidth": 0.9}
        axes.errorbar(confidence[sparse], accuracy[sparse], noise[sparse], fmt="x", **grey)
    axes.errorbar(
        confidence[~sparse],
        accuracy[~sparse],
        noise[~sparse],
        fmt=look.marker,
        color=look.colour,
        markerfacecolor=PAPER if look.hollow else look.colour,
        markersize=4 if small else 5.5,
        markeredgewidth=1.0 if small else 1.4,
        elinewidth=1.3,
        capsize=0,
    )
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    if small:
        axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.tick_params(length=0, labelbottom=False)


@styled
def entropy_histograms(
    inside: Mapping[Key, Histogram], outside: Mapping[Key, Histogram], shift: str, style: Looks
) -> Figure:
    """Predictive entropy of test inputs and of the OOD inputs `shift`, one panel per method."""
    keys = [key for key in inside if key in outside]
    names = labels(keys)
    small = len(keys) > FEW
    columns = 3 if small else 2
    rows = -(-len(keys) // columns)
    figure = blank((1.55 if small else 2.5) * rows + 0.75)
    drawn = panels(figure, len(keys), columns, sharex=True, sharey=True)
    for axes, key in zip(drawn, keys, strict=True):
        test, ood, colour = inside[key], outside[key], style[key].colour
        axes.stairs(test.share, test.edges, fill=True, color=colour, alpha=0.55)
        axes.stairs(ood.share, ood.edges, fill=True, facecolor="none", hatch="////", edgecolor="#b9c0c8")
        axes.stairs(ood.share, ood.edges, color=INK, linewidth=1.2 if small else 1.5)
        _title(axes, names[key], small)
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
        axes.tick_params(length=0, labelbottom=not small or key in keys[-columns:])
        axes.set_ylim(bottom=0)
        axes.margins(x=0.01)
    shown = [_swatch("#8f98a3", None, "test inputs"), _swatch("none", "////", shift)]
    figure.legend(handles=shown, loc="outside upper left", ncols=2)
    figure.supxlabel("entropy of the prediction (nats)", fontsize=12, color=SOFT)
    figure.supylabel("share of inputs", fontsize=12, color=SOFT)
    return figure


def _swatch(face: str, hatch: str | None, label: str) -> Any:
    return Patch(facecolor=face, edgecolor=INK if hatch else face, hatch=hatch, label=label, linewidth=1.2)
