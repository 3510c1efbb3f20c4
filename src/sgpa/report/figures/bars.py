"""Bars: one panel per column of a table, one bar per method, the published value as a diamond."""

from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from sgpa.report.figures.style import INK, PAPER, SOFT, Looks, blank, panels, styled
from sgpa.report.names import Key, attention_name, key_order, method_name, metric
from sgpa.report.tables import Column, Table

FEW = 4  # rows that get thick bars
NUMBER = 0.34  # room for the number right of a bar, as a share of the longest
CHANCE = {"auroc": 0.5, "error_auroc": 0.5}  # chance level, drawn as a dotted line
DIAMOND: dict[str, Any] = {
    "marker": "D",
    "markersize": 4.6,
    "markerfacecolor": PAPER,
    "markeredgecolor": INK,
    "markeredgewidth": 1.0,
    "linestyle": "none",
}


def _places(rows: tuple[Key, ...]) -> tuple[dict[Key, float], dict[str, float]]:
    """Positions of bars and of method names: bars of one method touch, those of different methods do not."""
    methods = list(dict.fromkeys(method for _, method in key_order(("", method) for _, method in rows)))
    places: dict[Key, float] = {}
    names = {}
    at = 0.0
    for method in methods:
        own = [row for row in rows if row[1] == method]
        for step, row in enumerate(own):
            places[row] = at + step
        names[method] = at + (len(own) - 1) / 2
        at += len(own) + (0.45 if len(own) < len(rows) else 0.0)
    return places, names


@styled
def metric_bars(table: Table, style: Looks, abreast: int = 2) -> Figure:
    """One panel per column with a bar per row; value beside the bar, whiskers ± 1 standard error."""
    columns = [column for column in table.columns if any((row, column) in table.cells for row in table.rows)]
    places, names = _places(table.rows)
    thick = len(table.rows) <= FEW
    span = max(places.values()) + 1
    height = 0.62 + (0.31 if thick else 0.165) * span
    figure = blank(height * -(-len(columns) // abreast) + 0.1)
    drawn = panels(figure, len(columns), abreast)
    long = any(len(column.title) > (22 if abreast == 2 else 13) for column in columns)
    for axes, column in zip(drawn, columns, strict=True):
        reach = max(_end(table, row, column, paper=True) for row in table.rows)
        for row, place in places.items():
            _bar(axes, table, row, column, place, style, reach)
        if column.metric in CHANCE:
            chance = CHANCE[column.metric] * metric(column.metric).scale
            axes.axvline(chance, color=INK, linestyle=(0, (1, 2)), linewidth=1)
        axes.set(yticks=list(names.values()), xticks=[])
        broken = f"{column.group}\n{column.heading}" if column.group and long else column.title
        axes.set_title(broken, fontsize=11 if long else None)
        axes.set_yticklabels(
            [method_name(method) for method in names], color=INK, fontsize=11 if thick else 10
        )
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
        axes.set_ylim(span - 0.4, -0.6)
        axes.set_xlim(right=reach * (1 + NUMBER) or 1.0)
        axes.label_outer()
    _key(figure, table)
    return figure


def _end(table: Table, row: Key, column: Column, *, paper: bool) -> float:
    """The right end of a row: bar and whisker, and the published value."""
    shape, cell = metric(column.metric), table.cells.get((row, column))
    if cell is None:
        return 0.0
    end = max(cell.mean, 0.0) + (cell.error or 0.0)
    printed = table.paper[row, column].mean if paper and (row, column) in table.paper else 0.0
    return max(end, printed) * shape.scale


def _bar(axes: Any, table: Table, row: Key, column: Column, place: float, style: Looks, reach: float) -> None:
    """One bar with its number, right of it, or right of the published value where the two would overlap."""
    thick = len(table.rows) <= FEW
    shape, cell = metric(column.metric), table.cells.get((row, column))
    size = {} if thick else {"fontsize": 9.5}
    if cell is None:
        axes.text(0, place, " not measured", va="center", color=SOFT, **size)
        return
    value, error = cell.mean * shape.scale, (cell.error or 0.0) * shape.scale
    axes.barh(place, value, height=0.72 if thick else 0.8, linewidth=0.8, **style[row].bar)
    if cell.error is not None:
        caps = {"capsize": 3, "elinewidth": 1.3, "capthick": 1.3} if thick else {"elinewidth": 1.2}
        axes.errorbar(value, place, xerr=error, color=INK, **caps)
    end = _end(table, row, column, paper=False)
    if (row, column) in table.paper:
        printed = table.paper[row, column].mean * shape.scale
        axes.plot([printed], [place], **DIAMOND)
        if -0.03 * reach < printed - end < NUMBER * reach:
            end = printed + 0.02 * reach
    axes.annotate(
        shape.text(cell.mean),
        (end, place),
        xytext=(5 if thick else 4, 0),
        textcoords="offset points",
        va="center",
        weight="bold" if row in table.best(column) else "normal",
        **size,
    )


def _key(figure: Figure, table: Table) -> None:
    """Legend of hollow bars and diamonds, where there are any."""
    shown: list[Any] = []
    attentions = list(dict.fromkeys(attention for attention, _ in table.rows if attention))
    if len(attentions) > 1:
        shown += [
            Patch(
                facecolor=PAPER if attention == "sdp" else "#8f98a3",
                edgecolor="#8f98a3",
                label=attention_name(attention),
            )
            for attention in attentions
        ]
    if any((row, column) in table.paper for row in table.rows for column in table.columns):
        shown.append(Line2D([], [], label="published value", **DIAMOND))
    if shown:
        figure.legend(handles=shown, loc="outside upper left", ncols=3, fontsize=10.5, columnspacing=1.2)
        figure.set_figheight(figure.get_figheight() + 0.3)
