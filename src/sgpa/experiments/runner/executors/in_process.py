"""Jobs in this process, one after the other."""

from concurrent.futures import Future
from pathlib import Path

from sgpa.core.progress import OnProgress
from sgpa.experiments.runner.jobs import Job


class InProcess:
    """Runs every job when it is submitted."""

    slots = 1

    def __init__(self, on_progress: OnProgress) -> None:
        self.on_progress = on_progress

    def ready(self, directory: Path, device: str) -> None:
        """Nothing to check: jobs can do what this process can."""

    def submit(self, job: Job) -> "Future[None]":
        """Run a job; an error is kept in the future."""
        future: Future[None] = Future()
        try:
            job.work(self.on_progress)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        return future

    def listen(self) -> None:
        """`submit` has passed on all progress already."""
