"""Small HTML tables for notebooks."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

SHOWN = 20  # rows of a table, where there are many


def html_table(header: Sequence[Any], rows: Iterable[Sequence[Any]], most: int | None = None) -> str:
    """A table with a header; cells are escaped. Of more than `most` rows only so many are shown.

    >>> html_table(["a"], [["<b>"]])
    '<table><tr><th>a</th></tr><tr><td>&lt;b&gt;</td></tr></table>'
    """
    rows = list(rows)
    lines = [_row("th", header), *(_row("td", cells) for cells in rows[:most])]
    left = 0 if most is None else len(rows) - most
    return f"<table>{''.join(lines)}</table>" + (f"<p>and {left} more</p>" if left > 0 else "")


def html_bar(share: float, colour: str = "#4878a8") -> str:
    """A horizontal bar of 0 to 100 pixels as inline SVG."""
    width = 100 * min(1.0, max(0.0, share))
    return f'<svg width="100" height="10"><rect width="{width:.1f}" height="10" fill="{colour}"/></svg>'


def _row(tag: str, cells: Sequence[Any]) -> str:
    shown = (cell if str(cell).startswith("<svg") else escape(str(cell)) for cell in cells)
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in shown)}</tr>"
