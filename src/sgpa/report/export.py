"""Markdown tables in the form of the paper's, and all records as one CSV file."""

import csv
import io
from collections.abc import Iterable

from sgpa.report.names import (
    CLEAN,
    DETECTION,
    ROBUSTNESS,
    corruption_type,
    metric,
    metric_order,
    sentence_case,
    shift_name,
    split_shift,
    task_name,
)
from sgpa.report.render import to_markdown
from sgpa.report.sections.blocks import Material, notes
from sgpa.report.tables import Column, Record, Table, columns_of, evaluation_table, make_table

COLUMNS = (
    "dataset",
    "augmentation",
    "evaluation",
    "shift",
    "attention",
    "method",
    "metric",
    "value",
    "seed",
)
TITLES = {CLEAN: "in-distribution", ROBUSTNESS: "robustness", DETECTION: "OOD detection"}


def markdown_tables(material: Material) -> dict[str, str]:
    """File name -> text: one file per evaluation of a task; published values below ours."""
    files = {}
    for evaluation, title in TITLES.items():
        tables = _tables(material, evaluation)
        if tables:
            blocks = [f"# {task_name(material.task)}: {title}", "Mean over seeds ± one standard error."]
            for heading, table in tables:
                shown = material.annotated(table)
                blocks += [
                    f"## {heading}" if heading else "",
                    to_markdown(shown).rstrip(),
                    notes(shown).replace("*", "\\*"),
                ]
            name = "-".join(filter(None, (*material.task, evaluation)))
            files[f"{name}.md"] = "\n\n".join(filter(None, blocks)) + "\n"
    return files


def _tables(material: Material, evaluation: str) -> list[tuple[str, Table]]:
    """One table of all metrics; of graded shifts, one table per metric with a column per strength."""
    cells = material.cells
    measured = [c for c in columns_of(cells, evaluation) if not corruption_type(c.shift)]
    if not any(split_shift(c.shift)[1] is not None for c in measured):
        table = evaluation_table(cells, evaluation)
        return [("", table)] if table.rows else []
    tables = []
    for family in dict.fromkeys(split_shift(c.shift)[0] for c in measured):
        words = sentence_case(shift_name(family))
        own = [c for c in measured if split_shift(c.shift)[0] == family]
        for name in metric_order(c.metric for c in own):
            columns = [
                Column(c.evaluation, c.shift, name, label=f"strength {split_shift(c.shift)[1] or '–'}")
                for c in own
                if c.metric == name
            ]
            tables.append((f"{words}: {metric(name).heading}", make_table(cells, columns)))
    return tables


def results_csv(records: Iterable[Record]) -> str:
    """All records, one line per number, with the columns of the published results."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()
