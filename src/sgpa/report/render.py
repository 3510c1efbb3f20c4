"""Tables as Markdown, HTML and terminal text. The best value of a column is bold, a missing one a dash."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from markupsafe import Markup, escape
from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.markup import escape as rich_escape
from rich.table import Table as RichTable
from rich.text import Text

from sgpa.report.names import Key, attention_name, is_baseline, labels, method_name, metric, sentence_case
from sgpa.report.tables import Cell, CellKey, Column, Published, Table

MISSING = "–"
SAME = 1e-9  # below such an error the values of all seeds are the same
ABREAST = 4  # up to so many methods are columns in a terminal


@dataclass(frozen=True)
class Grid:
    """A table of text; the first column names the row.

    A row of one cell is a heading for the rows below. Text after a line break in a cell is a side note.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Confusion(Grid):
    """A table of counts, the true class against the answer; the diagonal is emphasised."""


def _parts(
    cells: Mapping[CellKey, Cell], row: Key, column: Column, *, signed: bool = False
) -> tuple[str, str]:
    """Value and '± error' as printed, each possibly empty."""
    cell = cells.get((row, column))
    if cell is None:
        return "", ""
    shape = metric(column.metric)
    doubt = "?" if isinstance(cell, Published) and cell.doubtful else ""
    sign = "+" if signed and cell.mean > 0 else ""
    value = sign + shape.text(cell.mean).replace("-", "−") + doubt
    same = is_baseline(row[1]) and (cell.error or 0.0) < SAME  # for every seed
    return value, "" if cell.error is None or same else f"± {shape.text(cell.error)}"


# Markdown


def to_markdown(table: Table | Grid) -> str:
    """A Markdown table, numbers aligned right; a row of published values under each row that has any."""
    if isinstance(table, Grid):
        width = len(table.head)
        whole = [row if len(row) > 1 else (f"**{row[0]}**", *[""] * (width - 1)) for row in table.rows]
        return _lines(table.head, whole, right=False)
    names = labels(table.rows)
    best = {column: table.best(column) for column in table.columns}

    def show(row: Key, column: Column) -> str:
        value, error = _parts(table.cells, row, column, signed=table.signed)
        value = f"**{value}**" if row in best[column] else value
        return " ".join(filter(None, (value, error, table.marks.get((row, column))))) or MISSING

    def published(row: Key, column: Column) -> str:
        return " ".join(filter(None, _parts(table.paper, row, column))) or MISSING

    body = []
    for row in table.rows:
        body.append((names[row], *(show(row, column) for column in table.columns)))
        if any((row, column) in table.paper for column in table.columns):
            body.append(("*paper*", *(published(row, column) for column in table.columns)))
    return _lines(("Method", *(column.title for column in table.columns)), body, right=True)


def _lines(head: Iterable[str], rows: Iterable[Iterable[str]], *, right: bool) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(_plain(cell) for cell in cells) + " |"

    head = list(head)
    rule = line([":--", *["--:" if right else ":--"] * (len(head) - 1)])
    return "\n".join([line(head), rule, *map(line, rows)]) + "\n"


def _plain(text: str) -> str:
    """Text of a Markdown cell: stars of significance and vertical bars are escaped."""
    return re.sub(r" \*$", r" \\*", text).replace("|", "\\|").replace("\n", "; ")


# Terminal


def to_rich(table: Table, title: str | None = None) -> RenderableType:
    """The table for a terminal.

    Up to four methods are columns of one table; more are rows, with one table for each group of metrics.
    """
    return _methods_abreast(table, title) if len(table.rows) <= ABREAST else _methods_below(table, title)


def _rich_cell(table: Table, row: Key, column: Column, best: set[Key]) -> str:
    value, error = _parts(table.cells, row, column, signed=table.signed)
    value = f"[bold]{value}[/bold]" if row in best else value
    return " ".join(filter(None, (value, f"[dim]{error}[/dim]" if error else ""))) or MISSING


def _methods_abreast(table: Table, title: str | None) -> RichTable:
    names = labels(table.rows)
    shown = RichTable(title=title, title_justify="left", box=SIMPLE, collapse_padding=True)  # fits 80 columns
    for heading in ("", "", *names.values()):
        shown.add_column(rich_escape(heading), justify="right" if heading else "left")
    shown.columns[1].no_wrap = True
    group = None
    for column in table.columns:
        best = table.best(column)
        texts = [_rich_cell(table, row, column, best) for row in table.rows]
        if column.group != group and group is not None:
            shown.add_section()
        heading = "" if column.group == group else rich_escape(column.group)
        shown.add_row(heading, rich_escape(column.heading), *texts)
        group = column.group
    return shown


def _methods_below(table: Table, title: str | None) -> Group:
    names = labels(table.rows)
    parts: list[RenderableType] = [Text(title, style="italic")] if title else []
    for group in dict.fromkeys(column.group for column in table.columns):
        columns = [column for column in table.columns if column.group == group]
        best = {column: table.best(column) for column in columns}
        shown = RichTable(title=rich_escape(group) or None, title_justify="left")
        shown.add_column("")
        for column in columns:
            shown.add_column(rich_escape(column.heading), justify="right")
        for row in table.rows:
            cells = (_rich_cell(table, row, column, best[column]) for column in columns)
            shown.add_row(rich_escape(names[row]), *cells)
        parts.append(shown)
    return Group(*parts)


# HTML: header and body rows; the page supplies <table> and caption. Every text is escaped.


def to_html(table: Table | Grid) -> Markup:
    """`<thead>` and `<tbody>`; with several attentions, each has a heading row."""
    if isinstance(table, Grid):
        return _grid_html(table)
    edge = _edges(table)
    best = {column: table.best(column) for column in table.columns}
    several = len({attention for attention, _ in table.rows}) > 1
    body, shown = "", None
    for row in table.rows:
        attention, method = row
        if several and attention != shown:
            title = "Simple baselines" if is_baseline(method) else sentence_case(attention_name(attention))
            body += (
                f'<tr class="kind"><th colspan="{len(edge) + 1}" scope="rowgroup">{escape(title)}</th></tr>'
            )
            shown = attention
        body += f'<tr><th scope="row">{escape(method_name(method))}</th>'
        for at, column in zip(edge, table.columns, strict=True):
            body += f"<td{at}>{_cell_html(table, row, column, row in best[column])}</td>"
        body += "</tr>"
    return Markup(f"<thead>{_head_html(table, edge)}</thead><tbody>{body}</tbody>")


def _cell_html(table: Table, row: Key, column: Column, best: bool) -> str:
    value, error = _parts(table.cells, row, column, signed=table.signed)
    mark = escape(table.marks.get((row, column), ""))
    text = f"<strong>{value}</strong>" if best else value or MISSING
    text += f"<sup>{mark}</sup>" if mark else ""
    text += f' <span class="error">{error}</span>' if error else ""
    published, _ = _parts(table.paper, row, column)
    return text + (f' <span class="paper">paper {published}</span>' if published else "")


def _groups(table: Table) -> list[tuple[str, int]]:
    """Group titles with the number of adjacent columns under each."""
    groups: list[tuple[str, int]] = []
    for column in table.columns:
        if groups and groups[-1][0] == column.group:
            groups[-1] = (column.group, groups[-1][1] + 1)
        else:
            groups.append((column.group, 1))
    return groups


def _edges(table: Table) -> list[str]:
    """The class of each column: a rule where a group starts."""
    starts, place = set(), 0
    for _, size in _groups(table)[:-1]:
        starts.add(place := place + size)
    return [' class="edge"' if i in starts else "" for i in range(len(table.columns))]


def _head_html(table: Table, edge: list[str]) -> str:
    groups = _groups(table)
    grouped = any(title for title, _ in groups)
    first = f'<th scope="col"{" rowspan=2" if grouped else ""}>Method</th>'
    heads = "".join(
        f'<th scope="col"{at}>{escape(_tied_arrow(column.heading))}</th>'
        for at, column in zip(edge, table.columns, strict=True)
    )
    if not grouped:
        return f"<tr>{first}{heads}</tr>"
    spans = "".join(
        f'<th scope="colgroup" colspan="{size}"{" class=edge" if i else ""}>{escape(title)}</th>'
        for i, (title, size) in enumerate(groups)
    )
    return f'<tr class="groups">{first}{spans}</tr><tr>{heads}</tr>'


def _tied_arrow(heading: str) -> str:
    """The heading with a no-break space before its arrow."""
    return re.sub(r" (?=[↑↓]$)", "\N{NO-BREAK SPACE}", heading)


def _grid_html(grid: Grid) -> Markup:
    head = "".join(f'<th scope="col">{escape(_tied_arrow(text))}</th>' for text in grid.head)
    body = ""
    diagonal = isinstance(grid, Confusion)
    for place, (first, *rest) in enumerate(grid.rows):
        if not rest:
            body += (
                f'<tr class="kind"><th colspan="{len(grid.head)}" scope="rowgroup">{escape(first)}</th></tr>'
            )
            continue
        body += f'<tr><th scope="row">{escape(first)}</th>'
        for i, text in enumerate(rest):
            main, _, note = text.partition("\n")
            side = f'<span class="paper">{escape(note)}</span>' if note else ""
            shown = escape(main) or MISSING
            shown = Markup(f"<strong>{shown}</strong>") if diagonal and i == place else shown
            body += f"<td>{shown}{side}</td>"
        body += "</tr>"
    return Markup(f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>")
