"""Time several jobs fairly: prepare them in parallel, each in its own process, then run them one at a time.

Preparing a job is mostly compilation. Several processes may compile at once, but nothing is timed meanwhile.
When all jobs are ready they run in turn, several rounds: slow changes of the machine affect all jobs alike.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import Any

import torch

TURN_LIMIT = 60.0  # seconds that one run of a job may take
THREADS = "TORCHINDUCTOR_COMPILE_THREADS"


@dataclass(frozen=True)
class ReadyJob:
    """A prepared job. `run` runs it once and returns the measured seconds."""

    run: Callable[[], float]
    peak: int | None = None  # bytes of device memory it holds, if measured


Make = Callable[[Any], AbstractContextManager[ReadyJob]]  # a function of a module, so that it can be sent


@dataclass
class Worker:
    """A task, the process (or thread) that runs it, and its results so far."""

    task: Any
    process: Any
    pipe: "Connection[Any, Any]"
    peak: int | None = None
    error: str | None = None
    times: list[float] = field(default_factory=list)

    def receive(self, limit: float = TURN_LIMIT) -> Any:
        """The next message of the worker; None, with `error` set, where it failed."""
        try:
            if not self.pipe.poll(limit):
                self.stop(f"no answer within {limit:g} s")
                return None
            kind, value = self.pipe.recv()
        except (EOFError, OSError):
            kind, value = "failed", "its process died"
        if kind == "failed":
            self.error = value
            return None
        return value

    def turn(self) -> None:
        """Run the job once and record its time."""
        try:
            self.pipe.send(True)
        except OSError:
            self.error = "its process died"
            return
        if (seconds := self.receive()) is not None:
            self.times.append(seconds)

    def stop(self, error: str | None = None) -> None:
        """No more runs. With an error the process is terminated."""
        self.error = self.error or error
        self.pipe.close()
        if error is not None and not isinstance(self.process, Thread):
            self.process.terminate()


OnReady = Callable[[Worker], None]


def prepare(
    tasks: Sequence[Any], make: Make, processes: int, patience: float, on_ready: OnReady = lambda _: None
) -> list[Worker]:
    """Prepare all tasks, `processes` at a time; with 0, one by one in this process.

    A task that is not ready after `patience` seconds has failed. `on_ready` is called with every worker that
    is ready or has failed.
    """
    deadline = time.monotonic() + patience
    os.environ.setdefault(THREADS, str(max(1, (os.cpu_count() or 1) // max(1, processes))))
    waiting, busy, workers = list(tasks), list[Worker](), list[Worker]()
    try:
        while waiting or busy:
            while waiting and len(busy) < max(1, processes):
                busy.append(_start(waiting.pop(0), make, processes > 0))
                workers.append(busy[-1])
            left = deadline - time.monotonic()
            readable = wait([worker.pipe for worker in busy], max(0.0, left))
            for worker in [worker for worker in busy if worker.pipe in readable or left <= 0]:
                if worker.pipe in readable:
                    worker.peak = worker.receive()
                else:
                    worker.stop("not ready in time")
                busy.remove(worker)
                on_ready(worker)
    except BaseException:
        for worker in workers:
            worker.stop("interrupted")
        raise
    return workers


def rounds(workers: Sequence[Worker], count: int) -> Iterator[int]:
    """Run every ready job once per round; yields the number of the round after it."""
    for number in range(count):
        for worker in workers:
            if worker.error is None:
                worker.turn()
        yield number


def _start(task: Any, make: Make, in_process: bool) -> Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    kind: Any = context.Process if in_process else Thread
    process = kind(target=work, args=(task, make, theirs))
    process.start()
    if in_process:
        theirs.close()  # the other end then reports the end of the process
    return Worker(task, process, ours)


def work(task: Any, make: Make, pipe: "Connection[Any, Any]") -> None:
    """The worker's side: prepare the job, then run it once for every message until the pipe closes."""
    try:
        with make(task) as job:
            pipe.send(("ready", job.peak))
            while _wanted(pipe):
                pipe.send(("took", job.run()))
    except Exception as error:  # any error of one task must not stop the others
        message = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:200]
        with suppress(OSError):  # the other end may be closed
            pipe.send(("failed", "out of memory" if isinstance(error, torch.OutOfMemoryError) else message))
    finally:
        pipe.close()


def _wanted(pipe: "Connection[Any, Any]") -> bool:
    try:
        return bool(pipe.recv())
    except (EOFError, OSError):
        return False
