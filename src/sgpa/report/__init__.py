"""Reports of saved results: tables, figures and a page. Reads numbers, never a model."""

from sgpa.report.page import write_report
from sgpa.report.sections import headline
from sgpa.report.tables import (
    Cell,
    Column,
    Table,
    aggregate,
    evaluation_table,
    make_table,
    tasks,
    to_html,
    to_markdown,
    to_rich,
)

__all__ = [
    "Cell",
    "Column",
    "Table",
    "aggregate",
    "evaluation_table",
    "headline",
    "make_table",
    "tasks",
    "to_html",
    "to_markdown",
    "to_rich",
    "write_report",
]
