"""Run shell commands in parallel; each starts when the files it needs exist. Used to share one GPU.

Usage: python -m tools.job_queue JOBS FOLDER --at-once 6

A line of JOBS is `name; needs; command`. `needs` is a comma-separated list of files below FOLDER: outputs of
other commands, or `logs/NAME.rc`, which is written when NAME has ended. Commands run in FOLDER, in the order
of the lines. Lines may be added while the queue runs. Output goes to `logs/NAME.log`.

The queue stops on Ctrl-C, on SIGTERM, or when a file `stop` appears in FOLDER. It sends SIGTERM to the
process group of every running command, and SIGKILL after a grace period.
"""

import argparse
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from sgpa.core.errors import InputError
from sgpa.core.files import write_text

POLL_SECONDS = 0.5
GRACE_SECONDS = 30.0  # between SIGTERM and SIGKILL


@dataclass(frozen=True)
class Job:
    """A command and the files that must exist before it starts."""

    name: str
    needs: tuple[str, ...]
    command: str


def parse_jobs(text: str) -> list[Job]:
    """The jobs of a file. Empty lines and lines that start with # are ignored.

    >>> parse_jobs("a; ; echo a\\nb; logs/a.rc, x; echo b; echo c")[1]
    Job(name='b', needs=('logs/a.rc', 'x'), command='echo b; echo c')
    """
    jobs = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split(";", 2)]
        if len(parts) < 3 or not parts[0] or not parts[2]:
            raise InputError(f"job line {line!r}: expected `name; needs; command`")
        needs = tuple(need.strip() for need in parts[1].split(",") if need.strip())
        jobs.append(Job(parts[0], needs, parts[2]))
    return jobs


@dataclass
class Queue:
    """Running processes, and the exit status of those that have ended."""

    folder: Path
    at_once: int
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)

    def update(self, jobs: list[Job]) -> bool:
        """Record ended jobs and start those that can start. Returns whether any job is running."""
        for name, process in list(self.running.items()):
            if process.poll() is not None:
                self.ended[name] = process.returncode
                write_text(self.folder / "logs" / f"{name}.rc", str(process.returncode))
                del self.running[name]
        for job in jobs:
            new = job.name not in self.running and job.name not in self.ended
            ready = all((self.folder / need).exists() for need in job.needs)
            if new and ready and len(self.running) < self.at_once:
                self.running[job.name] = self._start(job)
        return bool(self.running)

    def _start(self, job: Job) -> "subprocess.Popen[bytes]":
        log = self.folder / "logs" / f"{job.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as out:
            return subprocess.Popen(
                ["bash", "-c", job.command],
                cwd=self.folder,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a process group of its own, so that its children can be signalled
            )

    def stop(self, grace: float) -> None:
        """Send SIGTERM to all process groups, wait up to `grace` seconds, then send SIGKILL.

        Not SIGINT: a shell ignores it for background commands, and commands inherit that.
        """
        for process in self.running.values():
            _signal_group(process, signal.SIGTERM)
        deadline = time.monotonic() + grace
        for process in self.running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        for process in self.running.values():
            _signal_group(process, signal.SIGKILL)  # also children that outlived their shell
            process.wait()


def _signal_group(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # the group has ended
        os.killpg(process.pid, number)


def run(
    jobs: Path, folder: Path, at_once: int, grace: float = GRACE_SECONDS, stop: Callable[[], bool] = bool
) -> dict[str, int]:
    """Run the jobs until none is running and none can start, or until `stop` or the file `stop` says so.

    Returns the exit status of every ended job.
    """
    queue = Queue(folder, at_once)
    for old in (folder / "logs").glob("*.rc"):  # of an earlier queue
        old.unlink()
    try:
        while queue.update(parse_jobs(jobs.read_text(encoding="utf-8"))):
            if stop() or (folder / "stop").exists():
                break
            time.sleep(POLL_SECONDS)
    finally:
        queue.stop(grace)
    return queue.ended


class SigtermFlag:
    """True once SIGTERM has arrived inside the block.

    A flag, not an exception: an exception between the start of a job and the note of it would lose the job.
    """

    def __init__(self) -> None:
        self.raised = False

    def __bool__(self) -> bool:
        return self.raised

    def _handle(self, _: int, __: FrameType | None) -> None:
        self.raised = True

    def __enter__(self) -> "SigtermFlag":
        self._previous = signal.signal(signal.SIGTERM, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._previous)


def main() -> None:
    """Run the queue and print the status of every job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("jobs", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--at-once", type=int, default=6, help="jobs that may run at the same time")
    args = parser.parse_args()
    with SigtermFlag() as terminated:
        statuses = run(args.jobs, args.folder, args.at_once, stop=lambda: bool(terminated))
    for name, status in statuses.items():
        print(f"{name}: {'ok' if status == 0 else f'exit status {status}'}")
    if terminated:
        raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
