"""The pieces a page is made of, and the material of one task they are made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from matplotlib.figure import Figure

from sgpa.report import paired, paper
from sgpa.report.figures.curves import Curve
from sgpa.report.figures.style import Looks
from sgpa.report.names import Key, Task, labels, listed, split_shift
from sgpa.report.render import Grid
from sgpa.report.tables import Cells, Table


@dataclass(frozen=True)
class Titled:
    """A table with its caption; one with a `fold` opens on demand, under that line."""

    caption: str
    table: Table | Grid
    fold: str = ""


@dataclass(frozen=True)
class Plot:
    """A figure, its file name, its caption, and the words that stand for it when it cannot be seen."""

    name: str
    figure: Figure
    caption: str
    spoken: str
    fold: str = ""


@dataclass
class Section:
    """One heading of the report."""

    name: str
    title: str
    intro: str
    tables: list[Titled] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Nothing to show: the section is left out."""
        return not (self.tables or self.plots)

    @property
    def folds(self) -> list[str]:
        """The lines under which something is folded away, in order."""
        items: list[Plot | Titled] = [*self.plots, *self.tables]
        return list(dict.fromkeys(item.fold for item in items if item.fold))

    @property
    def side_by_side(self) -> bool:
        """One figure and little else: words and figure stand side by side where there is room."""
        open_tables = [t.table for t in self.tables if not t.fold]
        width = sum(len(t.columns) if isinstance(t, Table) else len(t.head) for t in open_tables)
        return len(self.plots) == 1 and not self.plots[0].fold and width <= 2


@dataclass(frozen=True)
class Material:
    """All there is to say about one task."""

    task: Task
    cells: Cells
    curves: Sequence[Curve]
    cost: Cells  # time and memory
    style: Looks  # of every row of the page

    def annotated(self, table: Table) -> Table:
        """The table with published values and marks of significance."""
        return replace(paired.with_marks(table), paper=paper.beside(self.cells, self.task))


def among(keys: Sequence[Key] | Mapping[Key, Any]) -> str:
    """The rows of a figure in words; many are counted."""
    names = list(labels(keys).values())
    return listed(names) if len(names) <= 4 else f"{len(names)} methods"


def notes(table: Table) -> str:
    """What stands beside the values of an annotated table, in words."""
    said = [paired.legend(table)]
    shown = [table.paper[row, c] for row in table.rows for c in table.columns if (row, c) in table.paper]
    if shown:
        said.append("“paper” is the published value.")
        if any(value.doubtful for value in shown):
            said.append("A question mark: it cannot be right as printed.")
        if any("regenerated" in split_shift(c.shift)[0] for c in table.columns):
            said.append("Regenerated corruptions stand for the official files.")
    return " ".join(filter(None, said))
