"""Pieces of work that depend on one another: run in order, told when they fail, never done twice."""

import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sgpa.core.errors import SgpaError
from sgpa.core.files import write_text

Announce = Callable[[str, int, int, str], None]
Work = Callable[[Announce], None]  # must be picklable where jobs leave the process


@dataclass(frozen=True)
class Job:
    """A piece of work; `needs` are the names of those that come before."""

    name: str
    work: Work
    needs: tuple[str, ...] = ()
    alone: bool = False  # one process does it, also where several share a training


@dataclass(frozen=True)
class Failure:
    """A job that failed, now or before, and why."""

    job: str
    reason: str


class Executor(Protocol):
    """Runs jobs, here or elsewhere."""

    slots: int  # jobs at a time

    def ready(self, directory: Path, device: str) -> None:
        """Make sure that jobs can write to this folder and use this device."""

    def submit(self, job: Job) -> "Future[None]":
        """Start a job."""

    def listen(self) -> None:
        """Pass on what running jobs have to tell."""


class InProcess:
    """Runs jobs in this process, one after the other."""

    slots = 1

    def __init__(self, announce: Announce) -> None:
        self.announce = announce

    def ready(self, directory: Path, device: str) -> None:
        """They can do what this process can."""

    def submit(self, job: Job) -> "Future[None]":
        """Run it now."""
        future: Future[None] = Future()
        try:
            job.work(self.announce)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        return future

    def listen(self) -> None:
        """Nothing runs elsewhere."""


def run_jobs(
    jobs: Sequence[Job],
    executor: Executor,
    failed: Path,
    *,
    retry: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Failure]:
    """Run every job whose needs are met; returns what failed.

    A failure is kept as a file in the folder `failed`; such a job is not tried again unless `retry`, and
    what depends on it waits. Everything else goes on.
    """
    names = {job.name for job in jobs}
    failures = {} if retry else {f.job: f for f in known_failures(failed) if f.job in names}
    for failure in failures.values():
        tell(f"{failure.job} failed before and is left alone: {failure.reason}")
    waiting = {job.name: job for job in jobs if job.name not in failures}
    done: set[str] = {need for job in jobs for need in job.needs} - names
    running: dict[Future[None], Job] = {}
    while waiting or running:
        ready = [job for job in waiting.values() if set(job.needs) <= done]
        for job in ready[: executor.slots - len(running)]:
            del waiting[job.name]
            running[executor.submit(job)] = job
        if not running:
            break  # what is left waits for something that failed
        finished = wait(running, timeout=0.2, return_when=FIRST_COMPLETED).done
        executor.listen()
        for future in finished:
            job = running.pop(future)
            error = future.exception()
            if error is None:
                done.add(job.name)
                (failed / f"{job.name}.txt").unlink(missing_ok=True)
                continue
            failures[job.name] = Failure(job.name, _reason(error))
            write_text(failed / f"{job.name}.txt", _reason(error) + "\n\n" + _trace(error))
            tell(f"{job.name} failed: {_reason(error)}")
    for name, job in waiting.items():
        lost = ", ".join(need for need in job.needs if need not in done)
        failures[name] = Failure(name, f"not run, because {lost} failed")
    return list(failures.values())


def known_failures(failed: Path) -> Iterable[Failure]:
    """Jobs that failed in earlier calls."""
    for file in sorted(failed.glob("*.txt")):
        yield Failure(file.stem, file.read_text(encoding="utf-8").split("\n", 1)[0])


def _reason(error: BaseException) -> str:
    """One line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if isinstance(error, SgpaError) else f"{type(error).__name__}: {text}"


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
