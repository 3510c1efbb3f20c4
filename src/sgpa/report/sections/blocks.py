"""The elements of a page (tables, plots, sections), and the material of one task."""

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
    """A table with its caption; with a `fold`, it is hidden under that heading until opened."""

    caption: str
    table: Table | Grid
    fold: str = ""


@dataclass(frozen=True)
class Plot:
    """A figure with its file name, caption and alternative text (`spoken`)."""

    name: str
    figure: Figure
    caption: str
    spoken: str
    fold: str = ""


@dataclass(frozen=True)
class Card:
    """One input with its answer and the truth; `picture` is a data URI or empty."""

    answer: str
    truth: str
    right: bool
    picture: str
    text: str


@dataclass(frozen=True)
class Gallery:
    """Cards under a heading."""

    title: str
    text: str
    cards: tuple[Card, ...]


@dataclass
class Section:
    """One heading of the report."""

    name: str
    title: str
    intro: str
    tables: list[Titled] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    galleries: list[Gallery] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.tables or self.plots or self.galleries)

    @property
    def folds(self) -> list[str]:
        """The headings of folded content, in order."""
        items: list[Plot | Titled] = [*self.plots, *self.tables]
        return list(dict.fromkeys(item.fold for item in items if item.fold))

    @property
    def side_by_side(self) -> bool:
        """Whether a narrow table and the only figure are placed side by side on wide screens."""
        open_tables = [t.table for t in self.tables if not t.fold]
        width = sum(len(t.columns) if isinstance(t, Table) else len(t.head) for t in open_tables)
        return len(self.plots) == 1 and not self.plots[0].fold and 0 < width <= 2


@dataclass(frozen=True)
class Material:
    """Everything a page needs about one task."""

    task: Task
    cells: Cells
    curves: Sequence[Curve]
    cost: Cells  # time and memory
    style: Looks  # of every row of the page
    judged: Key | None = None  # the model of a user's run
    test_rows: int = 0  # whose standard errors are shown; 0 where errors are those over seeds

    @property
    def errors(self) -> str:
        """What the errors in tables are."""
        if self.test_rows:
            return f"± one standard error over {self.test_rows} test rows"
        return "Mean over seeds ± one standard error"

    def annotated(self, table: Table) -> Table:
        """The table with published values and marks of significance."""
        return replace(paired.with_marks(table), paper=paper.published_cells(self.cells, self.task))


def among(keys: Sequence[Key] | Mapping[Key, Any]) -> str:
    """The rows of a figure in words; more than four are counted."""
    names = list(labels(keys).values())
    return listed(names) if len(names) <= 4 else f"{len(names)} methods"


def notes(table: Table) -> str:
    """Explanation of the marks and published values in an annotated table."""
    sentences = [paired.legend(table)]
    shown = [table.paper[row, c] for row in table.rows for c in table.columns if (row, c) in table.paper]
    if shown:
        sentences.append("“paper”: the published value.")
        if any(value.doubtful for value in shown):
            sentences.append("A question mark: the printed value cannot be correct.")
        if any("regenerated" in split_shift(c.shift)[0] for c in table.columns):
            sentences.append("Regenerated corruptions are compared with the official files.")
    return " ".join(filter(None, sentences))
