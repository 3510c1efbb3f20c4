"""The section about trust: how often `no` is right to say no."""

from sgpa.report.figures.curves import select
from sgpa.report.names import TRUST, Key, labels, listed, sentence_case, shift_name
from sgpa.report.sections.blocks import Material, Section, Titled
from sgpa.report.tables import Cells, Column, columns_of, make_table

MEANING = (
    "An answer is not trusted if it is unsure (its entropy is above a limit, chosen on held-out rows so that "
    "few of the trusted answers are wrong) or if its input is unfamiliar (its novelty is above that of 95 % "
    "of held-out rows). No out-of-distribution data are used to choose either."
)


def trust(material: Material) -> Section:
    """Shares of trusted answers among right, wrong and out-of-distribution ones."""
    section = Section("trust", "Which answers to trust", MEANING)
    columns = sorted(columns_of(material.cells, TRUST), key=lambda column: bool(column.shift))
    table = make_table(material.cells, [_titled(column) for column in columns])
    if table.rows:
        sentences = [*_sentences(material.cells, table.rows), *_promises(material)]
        section.tables.append(Titled(" ".join(sentences), table))
    return section


def _titled(column: Column) -> Column:
    group = "Test set" if not column.shift else sentence_case(shift_name(column.shift))
    return Column(column.evaluation, column.shift, column.metric, group)


def _sentences(cells: Cells, rows: tuple[Key, ...]) -> list[str]:
    """For every method: how much of what should not be trusted is marked as not trusted."""
    names = labels(rows)
    sentences = []
    for row in rows:
        refused = []
        for (key, column), cell in sorted(cells.items(), key=lambda item: bool(item[0][1].shift)):
            if (
                key == row
                and column.evaluation == TRUST
                and column.metric in ("trusted_wrong", "trusted_ood")
            ):
                what = "the wrong answers" if not column.shift else shift_name(column.shift)
                refused.append(f"{1 - cell.mean:.0%}".replace("%", "\N{NO-BREAK SPACE}%") + f" of {what}")
        if refused:
            sentences.append(f"{names[row]}: {listed(refused)} are marked as not trusted.")
    return sentences


def _promises(material: Material) -> list[str]:
    """For every method: what share of wrong answers its limit was chosen for, and whether that is shown."""
    groups = select(material.curves, "trust")
    names = labels(groups)
    sentences = []
    for key, curves in groups.items():
        data = curves[0]["data"]
        if data.get("max_error") is None or data.get("bound") is None:
            continue
        asked, bound = f"{data['max_error']:.1%}", f"{data['bound']:.1%}"
        sentences.append(
            f"{names[key]}: the limit is for at most {asked} wrong among the trusted; {data['rows']} "
            f"held-out rows show at most {bound}" + (", so it is an estimate." if data.get("doubt") else ".")
        )
    return sentences
