"""`python -m tests.kill --kills 100 --terms 50`: results equal those of an undisturbed benchmark bit for bit.

`sgpa benchmark digits` with a tiny model trains, tests and writes its report, again and again. Each attempt
is a fork of one process that has everything imported; it gets SIGKILL or SIGTERM at a random moment, and the
same command is typed again. Whenever a run is finished, its models, calibrations, results and tables are
compared with those of a run that nobody disturbed.
"""

import argparse
import hashlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import torch
from tests.support.killed_runs import TINY

from sgpa.core import provenance
from sgpa.core.files import checksum_of, read_tensors
from sgpa.experiments.runner import RunFolder
from sgpa.training import trainer

METHODS = "sgpa,ts"
COMPARED = (".safetensors", "results.json", "results.csv", ".md", "run.json", "finished.json")
LEFT_OUT = ("checkpoint", "report.md", "cost", "best")  # costs are times


def command(folder: Path) -> list[str]:
    """The command line of a run."""
    settings = [word for setting in TINY for word in ("--set", setting)]
    return [
        "sgpa",
        "benchmark",
        "digits",
        "--out",
        str(folder),
        "--methods",
        METHODS,
        "--seeds",
        "1",
        *settings,
    ]


def start(folder: Path) -> int:
    """Fork an attempt; what it prints goes to a file beside the folder."""
    child = os.fork()
    if child:
        return child
    with open(f"{folder}.txt", "w", encoding="utf-8") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    from sgpa.cli.app import main

    status = 0
    try:
        torch.manual_seed(time.time_ns() % 2**32)  # a new process has another random state
        with patch.object(sys, "argv", command(folder)):
            main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException as error:
        sys.stderr.write(f"raw {error!r}\n")
        status = 99
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def phase(folder: Path) -> str:
    """What a run was doing."""
    if not list(folder.glob("trainings/*/finished.json")):
        return "training"
    if (folder / "results.json").exists():
        return "report"
    return "testing" if list(folder.glob("cells/*/*")) else "training"


def content(folder: Path) -> dict[str, str]:
    """Digests of everything that must not depend on how often a run was stopped."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name.endswith(COMPARED))

    def digest(path: Path) -> str:
        if path.suffix == ".safetensors":  # the order of entries in the header is random
            return checksum_of(read_tensors(path)[0])
        return hashlib.sha256(path.read_bytes().replace(str(folder).encode(), b"here")).hexdigest()

    return {
        str(path.relative_to(folder)): digest(path)
        for path in sorted(files)
        if not any(word in str(path.relative_to(folder)) for word in LEFT_OUT)
    }


def check(status: int, sent: int | None, log: str) -> bool:
    """Whether an attempt finished; raises if it ended in a way that is not allowed."""
    if os.WIFSIGNALED(status):
        # SIGTERM kills only a process that has not begun its command yet
        assert os.WTERMSIG(status) == sent, f"ended by signal {os.WTERMSIG(status)}: {log}"
        assert sent == signal.SIGKILL or not log, log
        return False
    code = os.WEXITSTATUS(status)
    if code == 128 + signal.SIGTERM and sent == signal.SIGTERM:
        assert "Traceback" not in log, log
        return False
    assert code == 0, f"exit status {code}: {log}"
    return True


def run(folder: Path, signals: list[int], seed: int = 0) -> Counter[str]:
    """Send all signals; returns how many arrived in which phase."""
    rng, sent, left, number = random.Random(seed), Counter[str](), list(signals), 0
    started = time.monotonic()
    assert check(os.waitpid(start(folder / "whole"), 0)[1], None, "")
    whole, expected = time.monotonic() - started, content(folder / "whole")
    assert expected
    attempt = folder / "run-0"
    while True:
        child, kind = start(attempt), left[-1] if left else None
        if kind is not None:
            time.sleep(rng.uniform(0.0, rng.choice((0.1, 0.1, 0.1, 0.3, 1.0)) * whole))  # training is short
            at = phase(attempt)
            os.kill(child, kind)  # a process that has ended stays until it is waited for
        finished = check(os.waitpid(child, 0)[1], kind, Path(f"{attempt}.txt").read_text("utf-8"))
        if not finished:
            left.pop()
            sent[f"{signal.Signals(kind).name} in {at}"] += 1
            sys.stderr.write(
                f"{len(signals) - len(left)} of {len(signals)}: {signal.Signals(kind).name} in {at}\n"
            )
            continue
        actual = content(attempt)
        different = [
            name for name in expected.keys() | actual.keys() if expected.get(name) != actual.get(name)
        ]
        assert not different, f"{attempt}: {different}"
        sent["runs equal to the undisturbed one"] += 1
        sys.stderr.write(f"{attempt.name} is finished and equal\n")
        if not left:
            return sent
        number += 1
        attempt = folder / f"run-{number}"


def main() -> int:
    """Run it and print the counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.kill", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--terms", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    trainer.CHECKPOINT_SECONDS = 0.0  # every epoch
    provenance._commit = lambda: "the same"  # the repository may change while this runs
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])  # the first one imports for seconds
    from sgpa.report import page

    page.SECTIONS = page.SECTIONS[:1]  # figures take most of the time
    signals = [signal.SIGKILL] * given.kills + [signal.SIGTERM] * given.terms
    random.Random(given.seed).shuffle(signals)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        RunFolder.of("digits", Path(folder), TINY).task(0)  # forks inherit the data
        sent = run(Path(folder), signals, given.seed)
    for name, count in sorted(sent.items()):
        sys.stdout.write(f"{count} {name}\n")
    sys.stdout.write(f"{given.kills} SIGKILL and {given.terms} SIGTERM, {time.monotonic() - started:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
