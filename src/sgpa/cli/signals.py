"""SIGTERM, which schedulers send, ends a command as Ctrl-C does: workers stop, files stay whole."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminable() -> Iterator[None]:
    """Inside the block SIGTERM raises KeyboardInterrupt, and the exit status is then 143.

    Processes that torchrun started keep the usual end: a handler would not run while they wait for each
    other.
    """
    if "RANK" in os.environ or threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def handle(number: int, _: FrameType | None) -> None:
        if not received:  # a second signal does not disturb the end
            received.append(number)
            raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        if received:
            raise SystemExit(128 + received[0]) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)
