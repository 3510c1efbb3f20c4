"""Runs one case under an alarm and judges how it ended."""

import random
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass

from sgpa.core.errors import SgpaError

SECONDS = 10.0  # of processor time: a case that takes more hangs
WAIT = 6  # times as long by the clock: the machine may be busy
MEMORY = 6 << 30  # bytes that a process may have


class Hang(BaseException):
    """The alarm rang; no handler of ordinary exceptions catches it."""


class Accepted(AssertionError):
    """Something wrong was accepted without a word."""


@dataclass(frozen=True)
class Finding:
    """A case that failed."""

    number: int
    case: str
    problem: str

    def __str__(self) -> str:
        return f"{self.number}: {self.case}\n    {self.problem}"


@contextmanager
def alarm(seconds: float):
    """A block that ends with `Hang` after so many seconds of processor time, or a multiple by the clock."""

    def ring(*_):
        raise Hang

    timers = (
        (signal.SIGPROF, signal.ITIMER_PROF, seconds),
        (signal.SIGALRM, signal.ITIMER_REAL, WAIT * seconds),
    )
    before = [signal.signal(number, ring) for number, _, _ in timers]
    for _, timer, limit in timers:
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def judge(
    number: int, case: str, call: Callable[[], object], expected: tuple = (SgpaError,)
) -> Finding | None:
    """What is wrong with a case, if anything."""
    try:
        with alarm(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    except expected as error:
        text = str(error)
        return None if text and "\n" not in text else Finding(number, case, f"not one line: {text!r}")
    except OSError as error:  # of the system, about a file that it names
        return None if error.filename else Finding(number, case, f"OSError: {error}")
    except Hang:
        return Finding(number, case, f"took longer than {SECONDS:g} s")
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f"{f.filename.rsplit('/sgpa/')[-1]}:{f.lineno}" for f in frames if "/sgpa/" in f.filename]
        return Finding(
            number, case, f"{type(error).__name__}: {str(error)[:200]!r} at {' < '.join(ours[::-1][:3])}"
        )
    return None


def limit_memory() -> None:
    """An allocation beyond `MEMORY` fails instead of filling the machine."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))


def peak_memory() -> int:
    """The most bytes that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def run(
    kind: str, case: Callable[[random.Random, int], tuple[str, Callable[[], object]]], numbers, seed: int
) -> list[Finding]:
    """All findings of the cases with these numbers; a case is made from a generator of its own."""
    findings = []
    for number in numbers:
        rng = random.Random(f"{kind} {seed} {number}")
        name, call = case(rng, number)
        if (finding := judge(number, name, call)) is not None:
            findings.append(finding)
    return findings
