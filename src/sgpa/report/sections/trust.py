"""The section about trust: how often `no` is right to say no."""

from sgpa.report.names import TRUST, Key, labels, metric, sentence_case, shift_name
from sgpa.report.sections.blocks import Material, Section, Titled
from sgpa.report.tables import Cells, Column, columns_of, make_table

MEANING = (
    "An answer is not trusted if it is unsure (its entropy is above a limit, chosen on held-out rows so that "
    "at most 10 % of the trusted answers are wrong) or if its input is unfamiliar (its novelty is above that "
    "of 95 % of held-out rows). No out-of-distribution data are used to choose either."
)


def trust(material: Material) -> Section:
    """Shares of trusted answers among right, wrong and out-of-distribution ones."""
    section = Section("trust", "Which answers to trust", MEANING)
    columns = columns_of(material.cells, TRUST)
    table = make_table(material.cells, [_titled(column) for column in columns])
    if table.rows:
        section.tables.append(Titled(" ".join(_sentences(material.cells, table.rows)), table))
    return section


def _titled(column: Column) -> Column:
    group = "Test set" if not column.shift else sentence_case(shift_name(column.shift))
    return Column(column.evaluation, column.shift, column.metric, group)


def _sentences(cells: Cells, rows: tuple[Key, ...]) -> list[str]:
    """For every method: how much of what should not be trusted is refused."""
    names = labels(rows)
    sentences = []
    for row in rows:
        refused = []
        for (key, column), cell in cells.items():
            if (
                key == row
                and column.evaluation == TRUST
                and column.metric in ("trusted_wrong", "trusted_ood")
            ):
                what = "wrong answers" if not column.shift else shift_name(column.shift)
                refused.append(f"{metric('accuracy').text(1 - cell.mean)} % of {what}")
        if refused:
            sentences.append(f"{names[row]} refuses {', '.join(refused)}.")
    return sentences
