"""Commands side by side, each started when what it needs is there: how several trainings share one card.

Usage: python -m tools.job_queue JOBS FOLDER --at-once 6
A line of JOBS is `name; needs; command`. `needs` are files below FOLDER, separated by commas: what another
command leaves behind, or `logs/NAME.rc`, which tells that NAME has ended. Commands run in FOLDER, in the
order of the lines; lines may be added while they run. A file `stop` in FOLDER ends it all, Ctrl-C too.
"""

import argparse
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from sgpa.core.errors import InputError
from sgpa.core.files import write_text

PAUSE = 0.5  # seconds between two looks


@dataclass(frozen=True)
class Line:
    """A command and what must be there before it starts."""

    name: str
    needs: tuple[str, ...]
    command: str


def lines(text: str) -> list[Line]:
    """The commands of a file; empty lines and those that start with # say nothing.

    >>> lines("a; ; echo a\\nb; logs/a.rc, x; echo b; echo c")[1]
    Line(name='b', needs=('logs/a.rc', 'x'), command='echo b; echo c')
    """
    found = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split(";", 2)]
        if len(parts) < 3 or not parts[0] or not parts[2]:
            raise InputError(f"{line!r} is not `name; needs; command`")
        needs = tuple(need.strip() for need in parts[1].split(",") if need.strip())
        found.append(Line(parts[0], needs, parts[2]))
    return found


@dataclass
class Queue:
    """What runs, and what has ended with which status."""

    folder: Path
    at_once: int
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)

    def look(self, wanted: list[Line]) -> bool:
        """See what has ended, start what can be; whether anything still runs."""
        for name, process in list(self.running.items()):
            if process.poll() is not None:
                self.ended[name] = process.returncode
                write_text(self.folder / "logs" / f"{name}.rc", str(process.returncode))
                del self.running[name]
        for line in wanted:
            new = line.name not in self.running and line.name not in self.ended
            ready = all((self.folder / need).exists() for need in line.needs)
            if new and ready and len(self.running) < self.at_once:
                self.running[line.name] = self._start(line)
        return bool(self.running)

    def _start(self, line: Line) -> "subprocess.Popen[bytes]":
        log = self.folder / "logs" / f"{line.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        command = ["bash", "-c", line.command]
        with log.open("wb") as out:
            return subprocess.Popen(
                command, cwd=self.folder, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )

    def stop(self) -> None:
        """Interrupt what runs, as Ctrl-C would, and wait for it."""
        for process in self.running.values():
            os.killpg(process.pid, signal.SIGINT)
        for process in self.running.values():
            process.wait()


def run(jobs: Path, folder: Path, at_once: int) -> dict[str, int]:
    """Until nothing runs that others could wait for; the status of every command that was started."""
    queue = Queue(folder, at_once)
    for told in (folder / "logs").glob("*.rc"):  # of an earlier time
        told.unlink()
    try:
        while queue.look(lines(jobs.read_text(encoding="utf-8"))) and not (folder / "stop").exists():
            time.sleep(PAUSE)
    finally:
        queue.stop()
    return queue.ended


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("jobs", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--at-once", type=int, default=6)
    args = parser.parse_args()
    for name, status in run(args.jobs, args.folder, args.at_once).items():
        print(f"{name}: {'fine' if status == 0 else f'status {status}'}")


if __name__ == "__main__":
    main()
