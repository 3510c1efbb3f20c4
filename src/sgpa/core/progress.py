"""What every progress bar shows, and how often plain lines replace it."""

from collections.abc import Callable

from rich.progress import (
    BarColumn,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

OnProgress = Callable[[str, int, int, str], None]  # name of the work, how much is done, of how much, a note
LINE_SECONDS = 30.0  # between two lines about the same work, if the output is not a terminal


class NoteColumn(ProgressColumn):
    """The field `note`, cut where the terminal is narrow: the bar and the times stay whole."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=False))

    def render(self, task: Task) -> Text:
        """One line that ends with dots where it does not fit."""
        return Text(task.fields["note"], no_wrap=True, overflow="ellipsis")


def progress_columns(width: int) -> tuple[ProgressColumn, ...]:
    """Description of so many characters, bar, share, time spent, time left and the field `note`."""
    return (
        TextColumn(f"{{task.description:<{width}}}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        NoteColumn(),
    )
