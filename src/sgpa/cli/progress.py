"""Progress bars on a terminal; plain lines elsewhere."""

import os
import time

from rich.console import Console
from rich.progress import Progress, TaskID

from sgpa.core.progress import LINE_SECONDS, progress_columns

console = Console(stderr=True)


class ProgressBars:
    """One bar per piece of work: share, time spent, time left and a note.

    If the output is not a terminal, each piece of work gets a plain line every half minute instead.
    `resumes` says what an interrupt leaves: work that the same command resumes, or nothing.
    """

    def __init__(self, resumes: bool = True) -> None:
        self.resumes = resumes
        self.silent = os.environ.get("RANK", "0") != "0"  # set by torchrun: only the first process prints
        self.bar = Progress(
            *progress_columns(18), console=console, disable=self.silent or not console.is_terminal
        )
        self.tasks: dict[str, TaskID] = {}
        self.lines: dict[str, tuple[float, int, bool]] = {}  # of the last line: time, number, whether the end

    def on_progress(self, work: str, done: int, total: int, note: str = "") -> None:
        """Show that `done` of `total` is done; a total of 0 is unknown."""
        if self.silent:
            return
        if not console.is_terminal:
            self._line(work, done, total, note)
            return
        if work not in self.tasks:
            self.tasks[work] = self.bar.add_task(work, total=None, note=note)
        self.bar.update(self.tasks[work], completed=done, total=total or None, note=note)

    def _line(self, work: str, done: int, total: int, note: str) -> None:
        """Print the first two lines, the last one, and one every half minute between them."""
        now = time.monotonic()
        last, number, ended = self.lines.get(work, (-LINE_SECONDS, 0, False))
        ends = 0 < total <= done
        if now - last < LINE_SECONDS and not (number < 2 and done) and (ended or not ends):
            return
        self.lines[work] = (now, number + 1, ends)
        share = f"{100 * done / total:3.0f} %" if total else f"{done:,}"
        console.print(f"{work:<18} {share}  {note}".rstrip(), markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> "ProgressBars":
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.bar.stop()
        if kind is KeyboardInterrupt and not self.silent:
            end = "re-run the same command to resume" if self.resumes else "nothing was written"
            console.print(f"stopped; {end}")
