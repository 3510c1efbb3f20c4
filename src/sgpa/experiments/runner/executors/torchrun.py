"""Jobs in processes that torchrun started: all share every training, the leader tests."""

from concurrent.futures import Future

from sgpa.core.errors import SgpaError
from sgpa.core.progress import OnProgress
from sgpa.experiments.runner.executors.in_process import InProcess
from sgpa.experiments.runner.jobs import Job, silent
from sgpa.training import process_group


class Ranks(InProcess):
    """The leader's side: broadcasts the next job and does its share of it."""

    def __init__(self, on_progress: OnProgress) -> None:
        super().__init__(on_progress)
        self.lost = False  # whether other processes may wait for a job that failed here

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._check()
            process_group.from_leader(lambda: None)  # no more jobs

    def submit(self, job: Job) -> "Future[None]":
        """Run a job now, together with the other processes unless it is for one."""
        self._check()
        if job.alone:
            return super().submit(job)
        process_group.from_leader(lambda: job)
        future = super().submit(job)
        self.lost = future.exception() is not None and not process_group.all_fail()
        return future

    def _check(self) -> None:
        if self.lost:
            raise SgpaError("a job failed in one of several processes; re-run the same command to resume")


def follow() -> None:
    """The other processes' side: do every job that the leader broadcasts, until there are no more."""
    while (job := process_group.from_leader(_nothing)) is not None:
        try:
            job.work(silent)
        except Exception:
            if not process_group.all_fail():
                raise


def _nothing() -> Job | None:
    return None
