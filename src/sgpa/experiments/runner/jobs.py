"""Jobs that depend on one another: run in order, failures kept on disk."""

import logging
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sgpa.core.errors import SgpaError, disk_full, is_temporary
from sgpa.core.files import write_text
from sgpa.core.progress import OnProgress

Work = Callable[[OnProgress], None]  # must be picklable where jobs leave the process

log = logging.getLogger(__name__)


def silent(*_: object) -> None:
    """An `OnProgress` that shows nothing."""


@dataclass(frozen=True)
class Job:
    """A piece of work; `needs` are the names of jobs that must be done before."""

    name: str
    work: Work
    needs: tuple[str, ...] = ()
    alone: bool = False  # run by one process, even if several share every training


@dataclass(frozen=True)
class Failure:
    """A job that failed, in this call or an earlier one."""

    job: str
    reason: str


class Executor(Protocol):
    """Runs jobs, in this process or elsewhere."""

    slots: int  # jobs at a time

    def ready(self, directory: Path, device: str) -> None:
        """Check that jobs can write to this folder and use this device."""

    def submit(self, job: Job) -> "Future[None]":
        """Start a job."""

    def listen(self) -> None:
        """Pass on the progress of running jobs."""


def run_jobs(
    jobs: Sequence[Job],
    executor: Executor,
    failed: Path,
    *,
    retry: bool = False,
) -> list[Failure]:
    """Run every job whose needs are met; returns the failures.

    A failure is logged and kept as a file in the folder `failed`. Such a job is not run again unless
    `retry`; jobs that need it are not run. All other jobs are. A full disk, a lost folder or a lost process
    is no failure of a job: it is returned, but not kept, and the job is run again by the next call.
    """
    names = {job.name for job in jobs}
    failures = {} if retry else {f.job: f for f in known_failures(failed) if f.job in names}
    for failure in failures.values():
        log.warning("%s failed before and is not run again: %s", failure.job, failure.reason)
    waiting = {job.name: job for job in jobs if job.name not in failures}
    done: set[str] = {need for job in jobs for need in job.needs} - names
    running: dict[Future[None], Job] = {}
    while waiting or running:
        ready = [job for job in waiting.values() if set(job.needs) <= done]
        for job in ready[: executor.slots - len(running)]:
            del waiting[job.name]
            running[executor.submit(job)] = job
        if not running:
            break  # all that is left needs a job that failed
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
            if not is_temporary(error):
                write_text(failed / f"{job.name}.txt", _reason(error) + "\n\n" + _trace(error))
            log.warning("%s failed: %s", job.name, _reason(error))
    for name, job in waiting.items():
        missing = ", ".join(need for need in job.needs if need not in done)
        failures[name] = Failure(name, f"not run, because {missing} failed")
    return list(failures.values())


def known_failures(failed: Path) -> Iterable[Failure]:
    """Failures of earlier calls."""
    for file in sorted(failed.glob("*.txt")):
        yield Failure(file.stem, file.read_text(encoding="utf-8").split("\n", 1)[0])


def _reason(error: BaseException) -> str:
    """The error as one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    if disk_full(error):
        return f"{text}; free some space and re-run the same command to resume"
    if is_temporary(error):
        return f"{text}; re-run the same command to resume"
    return text if isinstance(error, SgpaError) else f"{type(error).__name__}: {text}"


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
