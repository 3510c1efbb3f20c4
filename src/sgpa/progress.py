"""Progress bars for work that takes a while."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

console = Console(stderr=True)


class ProgressBars:
    """One line per piece of work: bar, share, time spent, time left and a note."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description:<18}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self.bar = Progress(*columns, console=console)
        self.tasks: dict[str, TaskID] = {}

    def announce(self, work: str, done: int, total: int, note: str = "") -> None:
        """Show that `work` has come to `done` of `total`; a total of 0 is one that is not known."""
        if work not in self.tasks:
            self.tasks[work] = self.bar.add_task(work, total=None, note=note)
        self.bar.update(self.tasks[work], completed=done, total=total or None, note=note)

    def __enter__(self) -> "ProgressBars":
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.bar.stop()
        if kind is KeyboardInterrupt:
            console.print("stopped; run the same command again to go on")
