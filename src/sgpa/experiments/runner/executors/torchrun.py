"""Jobs where torchrun started several processes: they do each training together, and the leader tests."""

from concurrent.futures import Future

from sgpa.core.errors import SgpaError
from sgpa.experiments.runner.jobs import Announce, InProcess, Job
from sgpa.training import process_group


class Ranks(InProcess):
    """The leader's side: says which job is next and does its share of it."""

    def __init__(self, announce: Announce) -> None:
        super().__init__(announce)
        self.lost = False  # whether the others may wait for something that this process has given up

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._check()
            process_group.from_leader(lambda: None)  # no more jobs

    def submit(self, job: Job) -> "Future[None]":
        """Run it now, together with the others or, where it is a job for one, alone."""
        self._check()
        if job.alone:
            return super().submit(job)
        process_group.from_leader(lambda: job)
        future = super().submit(job)
        self.lost = future.exception() is not None and not process_group.all_fail()
        return future

    def _check(self) -> None:
        if self.lost:
            raise SgpaError("a job failed in one of several processes; start again to go on with the others")


def follow() -> None:
    """The side of all others: do every job that the leader begins, until there is none."""
    while (job := process_group.from_leader(_nothing)) is not None:
        try:
            job.work(_silent)
        except Exception:
            if not process_group.all_fail():
                raise


def _nothing() -> Job | None:
    return None


def _silent(*_: object) -> None:
    """The leader tells."""
