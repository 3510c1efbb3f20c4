"""One writer at a time in a run folder: a second command waits until the first has ended."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from sgpa.core.files import make_folder
from sgpa.training import process_group

LOCK = ".lock"  # stays in the folder; the system releases it when its process ends, however it ends

log = logging.getLogger(__name__)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a run folder inside the block; wait, with one line in the log, where it is taken.

    Of the processes that torchrun started, the first one holds it. Where the file system has no locks, the
    block runs without one.
    """
    if not process_group.leader():
        yield
        return
    make_folder(directory)
    lock = FileLock(directory / LOCK)
    try:
        _acquire(lock, directory)
    except NotImplementedError:
        log.warning("%s: the file system has no locks; do not run two commands there at a time", directory)
    try:
        yield
    finally:
        lock.release()


def _acquire(lock: FileLock, directory: Path) -> None:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        log.warning("%s is in use by another command; waiting until it ends", directory)
        lock.acquire()
