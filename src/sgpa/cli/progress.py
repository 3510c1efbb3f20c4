"""Progress bars for work that takes a while; plain lines where nobody watches."""

import os
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

console = Console(stderr=True)
LINE_SECONDS = 30.0  # between two lines about the same work, where output goes to a file


class ProgressBars:
    """One line per piece of work: bar, share, time spent, time left and a note.

    Where the output is no terminal, each piece of work gets a plain line now and then instead.
    """

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description:<18}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
        )
        self.silent = os.environ.get("RANK", "0") != "0"  # torchrun's: the first of several processes tells
        self.bar = Progress(*columns, console=console, disable=self.silent or not console.is_terminal)
        self.tasks: dict[str, TaskID] = {}
        self.told: dict[str, tuple[float, int, bool]] = {}  # last line: when, which, whether the end

    def announce(self, work: str, done: int, total: int, note: str = "") -> None:
        """Show that `work` has come to `done` of `total`; a total of 0 is one that is not known."""
        if self.silent:
            return
        if not console.is_terminal:
            self._line(work, done, total, note)
            return
        if work not in self.tasks:
            self.tasks[work] = self.bar.add_task(work, total=None, note=note)
        self.bar.update(self.tasks[work], completed=done, total=total or None, note=note)

    def _line(self, work: str, done: int, total: int, note: str) -> None:
        """The first words, the first numbers, the end, and something every half minute."""
        now = time.monotonic()
        last, lines, ended = self.told.get(work, (-LINE_SECONDS, 0, False))
        ends = 0 < total <= done
        if now - last < LINE_SECONDS and not (lines < 2 and done) and (ended or not ends):
            return
        self.told[work] = (now, lines + 1, ends)
        share = f"{100 * done / total:3.0f} %" if total else f"{done:,}"
        console.print(f"{work:<18} {share}  {note}".rstrip(), markup=False, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """A line above the bars."""
        if not self.silent:
            console.print(text, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> "ProgressBars":
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.bar.stop()
        if kind is KeyboardInterrupt and not self.silent:
            console.print("stopped; run the same command again to go on")
