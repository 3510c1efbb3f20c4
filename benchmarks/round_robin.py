"""Jobs that are made ready side by side, each in a process of its own, and then run one at a time.

Making ready is compilation for the most part: several processes may do it at once, but not while something is
timed. So the first turn is taken when nobody compiles any more. All jobs take turns, several times over:
whatever a machine does slowly, like warming up, falls on all of them alike.
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

LIMIT = 60.0  # seconds that a turn may take
THREADS = "TORCHINDUCTOR_COMPILE_THREADS"


@dataclass(frozen=True)
class CalibratedMethod:
    """A job that can be run: each turn gives a number of seconds."""

    turn: Callable[[], float]
    peak: int | None = None  # bytes of the device it holds, if that was looked at


Make = Callable[[Any], AbstractContextManager[CalibratedMethod]]  # of a module, where other processes find it


@dataclass
class Worker:
    """A task under way, and what came of it."""

    task: Any
    process: Any  # a process or, in this one, a thread
    pipe: "Connection[Any, Any]"
    peak: int | None = None
    error: str | None = None
    times: list[float] = field(default_factory=list)

    def hear(self, limit: float = LIMIT) -> Any:
        """What the other side has to say; None where it failed."""
        try:
            if not self.pipe.poll(limit):
                self.stop("took too long")
                return None
            kind, value = self.pipe.recv()
        except (EOFError, OSError):
            kind, value = "failed", "its process died"
        if kind == "failed":
            self.error = value
            return None
        return value

    def turn(self) -> None:
        """Let it run once more."""
        try:
            self.pipe.send(True)
        except OSError:
            self.error = "its process died"
            return
        if (seconds := self.hear()) is not None:
            self.times.append(seconds)

    def stop(self, error: str | None = None) -> None:
        """No more turns; with an error it ends at once, if it can."""
        self.error = self.error or error
        self.pipe.close()
        if error is not None and not isinstance(self.process, Thread):
            self.process.terminate()


Tell = Callable[[Worker], None]


def prepare(
    tasks: Sequence[Any], make: Make, processes: int, patience: float, tell: Tell = lambda _: None
) -> list[Worker]:
    """Make all tasks ready, as many at a time as `processes` says; with none, one by one in this process.

    A task that is not ready after `patience` seconds has failed. `tell` hears of every one that is done.
    """
    deadline = time.monotonic() + patience
    os.environ.setdefault(THREADS, str(max(1, (os.cpu_count() or 1) // max(1, processes))))
    waiting, busy, found = list(tasks), list[Worker](), list[Worker]()
    try:
        while waiting or busy:
            while waiting and len(busy) < max(1, processes):
                busy.append(_start(waiting.pop(0), make, processes > 0))
                found.append(busy[-1])
            left = deadline - time.monotonic()
            heard = wait([worker.pipe for worker in busy], max(0.0, left))
            for worker in [worker for worker in busy if worker.pipe in heard or left <= 0]:
                if worker.pipe in heard:
                    worker.peak = worker.hear()
                else:
                    worker.stop("not ready in time")
                busy.remove(worker)
                tell(worker)
    except BaseException:  # nobody waits for them any more
        for worker in found:
            worker.stop("interrupted")
        raise
    return found


def rounds(workers: Sequence[Worker], count: int) -> Iterator[int]:
    """Turns of all that are ready, so many times over; what was found so far is there after each round."""
    for number in range(count):
        for worker in workers:
            if worker.error is None:
                worker.turn()
        yield number


def _start(task: Any, make: Make, elsewhere: bool) -> Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    kind: Any = context.Process if elsewhere else Thread
    process = kind(target=work, args=(task, make, theirs))
    process.start()
    if elsewhere:
        theirs.close()  # so that its death is heard
    return Worker(task, process, ours)


def work(task: Any, make: Make, pipe: "Connection[Any, Any]") -> None:
    """The other side: make ready, then take turns until nobody asks any more."""
    try:
        with make(task) as ready:
            pipe.send(("ready", ready.peak))
            while _asked(pipe):
                pipe.send(("took", ready.turn()))
    except Exception as error:  # whatever it is, other tasks are still to be measured
        told = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:200]
        with suppress(OSError):  # nobody may be there any more
            pipe.send(("failed", "out of memory" if isinstance(error, torch.OutOfMemoryError) else told))
    finally:
        pipe.close()


def _asked(pipe: "Connection[Any, Any]") -> bool:
    try:
        return bool(pipe.recv())
    except (EOFError, OSError):
        return False
