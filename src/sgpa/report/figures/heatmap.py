"""One number per corruption type and method, shaded within each type."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from sgpa.report.figures.style import INK, PAPER, blank, styled
from sgpa.report.names import Key, corruption_type, labels, metric, sentence_case
from sgpa.report.tables import Cells, Column


@styled
def type_heatmap(cells: Cells, columns: Sequence[Column], rows: Sequence[Key]) -> Figure:
    """Types (the `columns` of a table) downwards, methods (its `rows`) across.

    The shade runs within each type from the best method (light) to the worst (dark), because types differ
    in difficulty. The best value is bold.
    """
    names = labels(rows)
    values = np.array(
        [
            [cells[row, column].mean if (row, column) in cells else np.nan for row in rows]
            for column in columns
        ]
    )  # [types, methods]
    shape = metric(columns[0].metric)
    cost = -values if shape.higher_is_better else values
    low, high = np.nanmin(cost, 1, keepdims=True), np.nanmax(cost, 1, keepdims=True)
    shade = (cost - low) / np.where(high > low, high - low, 1.0)
    figure = blank(0.235 * len(columns) + 1.5)
    axes = figure.subplots()
    colours = mpl.colormaps["YlGnBu"](0.04 + 0.78 * np.nan_to_num(shade))
    colours[np.isnan(values)] = mpl.colors.to_rgba(PAPER)
    axes.pcolormesh(colours, edgecolors=PAPER, linewidth=1.2)
    digits = 1 if shape.scale == 100 else 2
    for (i, j), value in np.ndenumerate(values):
        text = "–" if np.isnan(value) else f"{value * shape.scale:.{digits}f}"
        colour = PAPER if shade[i, j] > 0.6 else INK
        weight = "bold" if shade[i, j] == 0 else "normal"
        axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=9, color=colour, weight=weight)
    axes.set_yticks(np.arange(len(columns)) + 0.5, [_type_name(column) for column in columns])
    axes.set_xticks(
        np.arange(len(rows)) + 0.5,
        [names[row] for row in rows],
        rotation=55,
        ha="left",
        rotation_mode="anchor",
    )
    axes.tick_params(length=0, labeltop=True, labelbottom=False, labelcolor=INK, labelsize=10)
    axes.invert_yaxis()
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set_visible(False)
    return figure


def _type_name(column: Column) -> str:
    return sentence_case(corruption_type(column.shift).replace("jpeg", "JPEG"))
