"""Progress bars for work that takes a while."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

console = Console(stderr=True)


class ProgressBars:
    """One line per run: bar, losses, time spent and time left."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description:<18}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:>4.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self.bar = Progress(*columns, console=console)
        self.tasks: dict[str, TaskID] = {}

    def announce(self, run: str, done: int, total: int, note: str) -> None:
        """Show that `run` has come to `done` of `total`."""
        if run not in self.tasks:
            self.tasks[run] = self.bar.add_task(run, total=total, note=note)
        self.bar.update(self.tasks[run], completed=done, note=note)

    def __enter__(self) -> "ProgressBars":
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.bar.stop()
        if kind is KeyboardInterrupt:
            console.print("stopped; run the same command again to go on")
