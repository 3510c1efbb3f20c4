"""Jobs in several processes of this machine, one thread each."""

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

from sgpa.core.errors import LostWorker
from sgpa.core.progress import OnProgress
from sgpa.experiments.runner.jobs import Job

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

RETRIES = 2  # of a job whose process died; it resumes from its checkpoint
_queue: list[Any] = []  # in a process of the pool: the queue for progress


@dataclass
class Attempt:
    """A job that was started, and its outcome."""

    job: Job
    left: int = field(default_factory=lambda: RETRIES)
    outcome: "Future[None]" = field(default_factory=Future)


class Processes:
    """A pool of `slots` processes, which end when this process ends, however it ends.

    If one of them dies (killed, or out of memory), all are started anew and their jobs are run again.
    """

    def __init__(self, slots: int, on_progress: OnProgress) -> None:
        self.slots, self.on_progress = slots, on_progress
        self.again: list[Attempt] = []  # attempts whose process died
        self.others: set[int] = set()  # ids of processes that the caller started

    def __enter__(self) -> "Processes":
        self.others = {child.pid or 0 for child in multiprocessing.active_children()}
        self._open()
        return self

    def _open(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.queue: Queue[tuple[Any, ...]] = context.Queue()
        self.pool = ProcessPoolExecutor(self.slots, context, begin, (os.getpid(), self.queue))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # do not wait for running jobs; they resume from their checkpoints
            for child in multiprocessing.active_children():
                if child.pid not in self.others:
                    child.terminate()
        self.pool.shutdown(cancel_futures=True)
        self._show()

    def ready(self, directory: Path, device: str) -> None:
        """Nothing to check: the processes can do what this one can."""

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
                attempt.outcome.set_exception(LostWorker(_died()))

        try:
            self.pool.submit(_work, attempt.job).add_done_callback(finish)
        except BrokenProcessPool:  # another job's process has just died
            self.again.append(attempt)

    def listen(self) -> None:
        """Show progress; start the processes anew if one has died."""
        self._show()
        if self.again:
            self.pool.shutdown()  # all its jobs have ended
            self._open()
            attempts, self.again = self.again, []
            for attempt in attempts:
                attempt.left -= 1
                self._start(attempt)

    def _show(self) -> None:
        try:
            while True:
                self.on_progress(*self.queue.get_nowait())
        except Empty:
            pass


def _died() -> str:
    return f"its process, or one beside it, died {RETRIES + 1} times; if memory was short, use fewer workers"


def begin(parent: int, queue: "Queue[Any]") -> None:
    """Prepare a process: one thread, and an exit as soon as the parent is gone."""
    torch.set_num_threads(1)
    queue.cancel_join_thread()  # progress that nobody reads must not keep a process alive
    _queue[:] = [queue]

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _work(job: Job) -> None:
    job.work(_put)


def _put(*line: Any) -> None:
    _queue[0].put(line)
