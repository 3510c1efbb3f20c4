"""From one record per number to tables: mean and standard error over seeds, as Markdown, terminal and HTML.

Rows are (attention, method), columns are metrics. The best value of a column is bold, a missing cell a dash.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup, escape
from rich.markup import escape as rich_escape
from rich.table import Table as RichTable

from sgpa.errors import InputError
from sgpa.report.names import Key, key_order, labels, metric, metric_order, sentence_case, shift_name

Record = Mapping[str, Any]
Task = tuple[str, str]  # data set, augmentation

MISSING = "–"
FIELDS = ("dataset", "evaluation", "attention", "method", "metric", "value", "seed")


@dataclass(frozen=True)
class Cell:
    """Mean over n seeds and its standard error, s / sqrt(n) with s over n - 1; None for one seed."""

    mean: float
    error: float | None
    n: int


@dataclass(frozen=True)
class Column:
    """What a column measures; `group` and `label` are only how it is titled."""

    evaluation: str
    shift: str
    metric: str
    group: str = field(default="", compare=False)
    label: str = field(default="", compare=False)

    @property
    def heading(self) -> str:
        """The label if one was given, else the metric's name, unit and arrow."""
        return self.label or metric(self.metric).heading


Cells = Mapping[tuple[Key, Column], Cell]


@dataclass(frozen=True)
class Table:
    """Rows by columns; `cells` may lack any pair."""

    rows: tuple[Key, ...]
    columns: tuple[Column, ...]
    cells: Cells

    def best(self, column: Column) -> set[Key]:
        """Rows that print the best value of a column; none when there is nothing to compare."""
        shape = metric(column.metric)
        means = {row: self.cells[row, column].mean for row in self.rows if (row, column) in self.cells}
        if len(means) < 2 or shape.higher_is_better is None:
            return set()
        top = (max if shape.higher_is_better else min)(means.values())
        return {row for row, mean in means.items() if shape.text(mean) == shape.text(top)}


def tasks(records: Iterable[Record]) -> list[Task]:
    """Distinct (data set, augmentation) pairs in the order they come."""
    return list(dict.fromkeys((r["dataset"], r.get("augmentation") or "") for r in records))


def summarise(values: Sequence[float]) -> Cell:
    """Mean, standard error and number of values.

    >>> summarise([1.0, 3.0])
    Cell(mean=2.0, error=1.0, n=2)
    """
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return Cell(mean, None, 1)
    return Cell(mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n), n)


def aggregate(records: Iterable[Record], task: Task | None = None) -> Cells:
    """One `Cell` per (row, column) over seeds, of one task or of all records when they share one.

    Records whose value is null or not finite are left out.
    """
    values: dict[tuple[Key, Column], dict[Any, float]] = {}
    for r in records:
        absent = [name for name in FIELDS if name not in r]
        if absent:
            raise InputError(f"a record lacks {', '.join(absent)}: {dict(r)}")
        if task is not None and (r["dataset"], r.get("augmentation") or "") != task:
            continue
        if r["value"] is None or not math.isfinite(r["value"]):
            continue
        column = Column(r["evaluation"], r.get("shift") or "", r["metric"])
        seeds = values.setdefault(((r["attention"] or "", r["method"]), column), {})
        if r["seed"] in seeds:
            raise InputError(
                f"two values of {r['metric']} for {r['method']}, shift {column.shift!r}, "
                f"seed {r['seed']}; keep one"
            )
        seeds[r["seed"]] = float(r["value"])
    return {place: summarise(list(seeds.values())) for place, seeds in values.items()}


def columns_of(cells: Cells, evaluation: str) -> list[Column]:
    """Columns of one evaluation, by shift in the order they come, metrics in their usual order."""
    found = list(dict.fromkeys(column for _, column in cells if column.evaluation == evaluation))
    shifts = list(dict.fromkeys(column.shift for column in found))
    order = metric_order(column.metric for column in found)
    return sorted(found, key=lambda column: (shifts.index(column.shift), order.index(column.metric)))


def make_table(cells: Cells, columns: Iterable[Column]) -> Table:
    """The table of the columns that hold anything, with the rows that hold anything in them."""
    kept = tuple(column for column in columns if any(place[1] == column for place in cells))
    rows = tuple(key_order(row for row, column in cells if column in kept))
    return Table(rows, kept, cells)


def evaluation_table(cells: Cells, evaluation: str) -> Table:
    """All metrics of one evaluation, grouped by shift where there is one."""
    return make_table(
        cells,
        (
            Column(c.evaluation, c.shift, c.metric, sentence_case(shift_name(c.shift)) if c.shift else "")
            for c in columns_of(cells, evaluation)
        ),
    )


def _parts(table: Table, row: Key, column: Column) -> tuple[str, str]:
    """Value and '± error' as printed, each possibly empty."""
    cell = table.cells.get((row, column))
    if cell is None:
        return "", ""
    shape = metric(column.metric)
    return shape.text(cell.mean), "" if cell.error is None else f"± {shape.text(cell.error)}"


def _flat_heading(column: Column) -> str:
    return f"{column.group}: {column.heading}" if column.group else column.heading


def to_markdown(table: Table) -> str:
    """A Markdown table, numbers aligned right, the best of a column in bold."""
    names = labels(table.rows)
    best = {column: table.best(column) for column in table.columns}

    def show(row: Key, column: Column) -> str:
        value, error = _parts(table, row, column)
        value = f"**{value}**" if row in best[column] else value
        return " ".join(filter(None, (value, error))) or MISSING

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    head = [
        line(["Method", *map(_flat_heading, table.columns)]),
        line([":--", *["--:"] * len(table.columns)]),
    ]
    body = [line([names[row], *(show(row, column) for column in table.columns)]) for row in table.rows]
    return "\n".join(head + body) + "\n"


def to_rich(table: Table, title: str | None = None) -> RichTable:
    """The same table for a terminal, which is narrow: a line per metric and a column per method."""
    names = labels(table.rows)
    shown = RichTable(title=title, title_justify="left")
    for heading in ("", "", *names.values()):
        shown.add_column(rich_escape(heading), justify="right" if heading else "left")
    group = None
    for column in table.columns:
        best = table.best(column)
        texts = []
        for row in table.rows:
            value, error = _parts(table, row, column)
            value = f"[bold]{value}[/bold]" if row in best else value
            texts.append(" ".join(filter(None, (value, f"[dim]{error}[/dim]" if error else ""))) or MISSING)
        if column.group != group and group is not None:
            shown.add_section()
        heading = "" if column.group == group else rich_escape(column.group)
        shown.add_row(heading, rich_escape(column.heading), *texts)
        group = column.group
    return shown


def _tied_arrow(heading: str) -> str:
    """The heading with its arrow kept on the line of the last word."""
    return re.sub(r" (?=[↑↓]$)", "\N{NO-BREAK SPACE}", heading)


def to_html(table: Table) -> Markup:
    """Header and body rows (`<thead>`, `<tbody>`), escaped; the page supplies `<table>` and caption."""
    groups: list[list[Any]] = []  # runs of neighbouring columns under one group title
    for column in table.columns:
        if groups and groups[-1][0] == column.group:
            groups[-1][1] += 1
        else:
            groups.append([column.group, 1])
    starts = {sum(size for _, size in groups[:i]) for i in range(1, len(groups))}
    edge = [' class="edge"' if i in starts else "" for i in range(len(table.columns))]
    grouped = any(title for title, _ in groups)
    first = f'<th scope="col"{" rowspan=2" if grouped else ""}>Method</th>'
    heads = "".join(
        f'<th scope="col"{edge[i]}>{escape(_tied_arrow(column.heading))}</th>'
        for i, column in enumerate(table.columns)
    )
    if grouped:
        spans = "".join(
            f'<th scope="colgroup" colspan="{size}"{" class=edge" if i else ""}>{escape(title)}</th>'
            for i, (title, size) in enumerate(groups)
        )
        thead = f'<tr class="groups">{first}{spans}</tr><tr>{heads}</tr>'
    else:
        thead = f"<tr>{first}{heads}</tr>"
    names = labels(table.rows)
    best = {column: table.best(column) for column in table.columns}
    body = ""
    for row in table.rows:
        body += f'<tr><th scope="row">{escape(names[row])}</th>'
        for i, column in enumerate(table.columns):
            value, error = _parts(table, row, column)
            value = f"<strong>{value}</strong>" if row in best[column] else value or MISSING
            body += f"<td{edge[i]}>{value}{f' <span class=error>{error}</span>' if error else ''}</td>"
        body += "</tr>"
    return Markup(f"<thead>{thead}</thead><tbody>{body}</tbody>")  # every text above is escaped
