"""Jobs side by side in processes of this machine, one thread each."""

import multiprocessing
import os
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any

import torch

from sgpa.core.errors import SgpaError
from sgpa.experiments.runner.jobs import Announce, Job

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

RETRIES = 2  # of a job whose process died: it goes on from its checkpoint
_news: list[Any] = []  # in a process of the pool: the queue that its news go through


@dataclass
class Attempt:
    """A job that was begun, and what will become of it."""

    job: Job
    left: int = RETRIES
    outcome: "Future[None]" = field(default_factory=Future)


class Processes:
    """A pool of `slots` processes. They end when this one does, however it ends.

    Where one of them dies (killed, or out of memory) all are started anew and their jobs tried again.
    """

    def __init__(self, slots: int, announce: Announce) -> None:
        self.slots, self.announce = slots, announce
        self.again: list[Attempt] = []  # attempts whose process died

    def __enter__(self) -> "Processes":
        self._open()
        return self

    def _open(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.news: Queue[tuple[Any, ...]] = context.Queue()
        self.pool = ProcessPoolExecutor(self.slots, context, begin, (os.getpid(), self.news))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # nobody waits for them any more; what they were at goes on from its checkpoint
            for child in multiprocessing.active_children():
                child.terminate()
        self.pool.shutdown(cancel_futures=True)
        self._show()

    def ready(self, directory: Path, device: str) -> None:
        """They can do what this process can."""

    def submit(self, job: Job) -> "Future[None]":
        """Start a job in one of the processes."""
        attempt = Attempt(job)
        self._start(attempt)
        return attempt.outcome

    def _start(self, attempt: Attempt) -> None:
        def finish(done: "Future[None]") -> None:
            error = done.exception()
            if error is None:
                attempt.outcome.set_result(None)
            elif not isinstance(error, BrokenProcessPool):
                attempt.outcome.set_exception(error)
            elif attempt.left:
                self.again.append(attempt)
            else:
                attempt.outcome.set_exception(SgpaError(DIED))

        try:
            self.pool.submit(_work, attempt.job).add_done_callback(finish)
        except BrokenProcessPool:  # another job's process has just died
            self.again.append(attempt)

    def listen(self) -> None:
        """Show what the processes have told; start them anew where one has died."""
        self._show()
        if self.again:
            self.pool.shutdown()  # by now all its jobs are back
            self._open()
            attempts, self.again = self.again, []
            for attempt in attempts:
                attempt.left -= 1
                self._start(attempt)

    def _show(self) -> None:
        try:
            while True:
                self.announce(*self.news.get_nowait())
        except Empty:
            pass


DIED = f"its process, or one beside it, died {RETRIES + 1} times; if memory was short, use fewer workers"


def begin(parent: int, news: "Queue[Any]") -> None:
    """Prepare a process: one thread, and an end as soon as nobody waits for it."""
    torch.set_num_threads(1)
    news.cancel_join_thread()  # news that nobody reads must not keep a process alive
    _news[:] = [news]

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _work(job: Job) -> None:
    job.work(_tell)


def _tell(*line: Any) -> None:
    _news[0].put(line)
