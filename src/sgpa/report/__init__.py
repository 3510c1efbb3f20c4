"""Reports of saved results: tables, figures and an HTML page. Reads numbers, never a model."""

from sgpa.report.judgement import judge
from sgpa.report.merge import merge
from sgpa.report.page import write_report
from sgpa.report.paired import paired_difference
from sgpa.report.render import to_html, to_markdown, to_rich
from sgpa.report.sections.overview import opening
from sgpa.report.sections.predictions import headline
from sgpa.report.tables import aggregate, evaluation_table, tasks

__all__ = [
    "aggregate",
    "evaluation_table",
    "headline",
    "judge",
    "merge",
    "opening",
    "paired_difference",
    "tasks",
    "to_html",
    "to_markdown",
    "to_rich",
    "write_report",
]
