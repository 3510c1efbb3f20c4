"""Jobs on the machines of a Ray cluster, which share the run folder."""

import os
import socket
import time
import uuid
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from sgpa.core.errors import ConfigError, SgpaError, check_fields
from sgpa.core.files import write_text
from sgpa.core.progress import OnProgress
from sgpa.experiments.runner.jobs import Job, Work

RETRIES = 2  # of a job whose process died: it resumes from its checkpoint
VISIBLE_SECONDS = 60.0  # how long a machine may take to see a file that another one wrote
FLUSH_SECONDS = 10.0  # how long a finished job waits until its progress has arrived
MAX_MESSAGES = 10_000  # lines of progress that wait to be shown


class Cluster:
    """Runs every job as a Ray task with one thread, and with a GPU of its own where `device` is cuda.

    `address` is "auto" for the cluster this machine belongs to, "host:port" or "ray://host:port" for another,
    and "local" for one on this machine that is stopped at the end. A cluster that the program has joined
    already is used as it is.
    """

    slots = 10_000  # Ray queues what does not fit yet

    def __init__(self, address: str, on_progress: OnProgress, *, cpus: float = 1) -> None:
        self.address, self.on_progress, self.cpus = address, on_progress, cpus
        try:
            self.ray: Any = import_module("ray")
        except ImportError:
            raise ConfigError("a cluster needs Ray: pip install ray") from None

    def __enter__(self) -> "Cluster":
        self.mine = not self.ray.is_initialized()
        if self.mine:
            self._join()
        self.queue = self.ray.remote(MessageQueue).options(num_cpus=0, max_restarts=-1).remote()
        self.ray.get(self.queue.take.remote())  # wait until it runs
        self.task = self.ray.remote(run)
        self.options = {"num_cpus": self.cpus, "max_retries": RETRIES}
        self.running: set[Any] = set()
        return self

    def _join(self) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage statistics
        quiet = {"log_to_driver": False, "logging_level": "WARNING"}
        try:
            check_reachable(self.address)
            self.ray.init(address=self.address, **quiet)
        except (ImportError, OSError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"no Ray cluster answers at {self.address!r}: start one with `ray start --head`, or use "
                f"local ({' '.join(str(error).split())[:200]})"
            ) from None

    def __exit__(self, *_: object) -> None:
        for reference in list(self.running):
            self.ray.cancel(reference, force=True)
        self.listen()
        self.ray.kill(self.queue)
        if self.mine:
            self.ray.shutdown()

    def ready(self, directory: Path, device: str) -> None:
        """Check that every machine sees a file in the run folder."""
        check_fields("cluster", [("device", device, device in ("cpu", "cuda"), "cpu, cuda")])
        if device == "cuda":
            self.options["num_gpus"] = 1
        mark = directory.resolve() / f".seen-by-all-{uuid.uuid4().hex}"
        write_text(mark, mark.name)
        try:
            self._look(mark)
        finally:
            mark.unlink(missing_ok=True)

    def _look(self, mark: Path) -> None:
        node = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        look = self.ray.remote(file_visible)
        answers = {
            f"{machine['NodeManagerAddress']} ({machine['NodeManagerHostname']})": look.options(
                num_cpus=0, scheduling_strategy=node(machine["NodeID"], soft=False)
            ).remote(str(mark))
            for machine in self.ray.nodes()
            if machine["Alive"]
        }
        for name, answer in answers.items():
            try:
                visible = self.ray.get(answer, timeout=2 * VISIBLE_SECONDS)
            except self.ray.exceptions.RayError as error:
                raise ConfigError(f"machine {name} cannot run jobs: {reason(error)}") from None
            if not visible:
                raise ConfigError(
                    f"machine {name} does not see {mark.parent}: the folder of the runs must be on a file "
                    "system that all machines of the cluster share, under the same path"
                )

    def submit(self, job: Job) -> "Future[None]":
        """Hand a job to Ray."""
        reference = self.task.options(name=job.name, **self.options).remote(job.work, self.queue)
        self.running.add(reference)
        future: Future[None] = Future()

        def finish(done: "Future[None]") -> None:
            self.running.discard(reference)
            error = done.exception()
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(unwrap_error(error, job))

        reference.future().add_done_callback(finish)
        return future

    def listen(self) -> None:
        """Show the progress of jobs."""
        try:
            for line in self.ray.get(self.queue.take.remote(), timeout=10):
                self.on_progress(*line)
        except self.ray.exceptions.RayError:
            pass  # lost progress is followed by newer


def check_reachable(address: str) -> None:
    """Raise an OSError unless host:port accepts connections; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


class MessageQueue:
    """An actor of the cluster that holds the progress of jobs."""

    def __init__(self) -> None:
        self.lines: deque[tuple[Any, ...]] = deque(maxlen=MAX_MESSAGES)

    def put(self, line: tuple[Any, ...]) -> None:
        """Add a line."""
        self.lines.append(line)

    def take(self) -> list[tuple[Any, ...]]:
        """All lines since the last call."""
        lines = list(self.lines)
        self.lines.clear()
        return lines

    def flush(self) -> None:
        """Return when all lines are there that the calling process has put: calls arrive in their order."""


def run(work: Work, queue: Any) -> None:
    """Run a job in a process of the cluster; its progress has arrived when it ends."""
    torch.set_num_threads(1)
    work(partial(put, queue))
    ray: Any = import_module("ray")
    with suppress(ray.exceptions.RayError):  # progress may be lost, finished work may not
        ray.get(queue.flush.remote(), timeout=FLUSH_SECONDS)


def put(queue: Any, *line: Any) -> None:
    """Send progress to the process that shows it."""
    queue.put.remote(line)


def file_visible(mark: str) -> bool:
    """Whether a file exists; on a network file system it may take a while to appear."""
    until = time.monotonic() + VISIBLE_SECONDS
    while not Path(mark).exists():
        if time.monotonic() > until or not Path(mark).parent.exists():
            return False
        time.sleep(1.0)
    return True


def unwrap_error(error: BaseException, job: Job) -> BaseException:
    """The error that the job raised, or an error that its process died."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return cause
    return SgpaError(
        f"{job.name}: its process died {RETRIES + 1} times ({reason(error)}); it may need more memory"
    )


def reason(error: BaseException) -> str:
    """The first line of Ray's message."""
    cause = getattr(error, "cause", None) or error
    return f"{type(cause).__name__}: {str(cause).strip().splitlines()[0] if str(cause).strip() else ''}"
