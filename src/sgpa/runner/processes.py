"""Jobs side by side in processes of this machine, one thread each."""

import multiprocessing
import os
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from queue import Empty, Queue
from typing import Any

import torch

from sgpa.runner.jobs import Announce, Job

News = tuple[str, int, int, str]


class Processes:
    """A pool of `slots` processes. They end when this one does, however it ends."""

    def __init__(self, slots: int, announce: Announce) -> None:
        self.slots, self.announce = slots, announce

    def __enter__(self) -> "Processes":
        context = multiprocessing.get_context("spawn")
        self.manager = context.Manager()
        self.news: Queue[News] = self.manager.Queue()
        self.pool = ProcessPoolExecutor(self.slots, context, begin, (os.getpid(),))
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(cancel_futures=True)
        self.listen()
        self.manager.shutdown()

    def submit(self, job: Job) -> "Future[None]":
        """Start a job in one of the processes."""
        return self.pool.submit(job.work, partial(put, self.news))

    def listen(self) -> None:
        """Show what the processes have told."""
        try:
            while True:
                self.announce(*self.news.get_nowait())
        except Empty:
            pass


def put(news: "Queue[News]", *line: Any) -> None:
    """Tell the process that shows progress."""
    news.put(line)


def begin(parent: int) -> None:
    """Prepare a process: one thread, and an end as soon as nobody waits for it."""
    torch.set_num_threads(1)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
