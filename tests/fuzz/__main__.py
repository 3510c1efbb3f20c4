"""`python -m tests.fuzz api|files|entries|cli --count N --seed S`: exit status 1 if a case fails."""

import argparse
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
from tests.fuzz import api, cli, files
from tests.fuzz.guard import limit_memory, peak_memory, run

KINDS = {"api": api.Cases, "files": files.Cases, "entries": files.Entries, "cli": cli.Cases}


def main() -> int:
    """Run the cases and print what failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--count", type=int, default=1000, help="cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="entries: only every so many, of all of them")
    parser.add_argument("--only", type=int, help="one case, by its number")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        cases = KINDS[given.kind](Path(folder))
        numbers = range(0, len(cases), given.every) if given.kind == "entries" else range(given.count)
        numbers = numbers if given.only is None else [given.only]
        (Path(folder) / "here").mkdir()
        os.chdir(Path(folder) / "here")  # names among the hostile values are written here
        limit_memory()
        before = peak_memory()
        findings = run(given.kind, cases.make, numbers, given.seed)
        os.chdir("/")
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    grown = (peak_memory() - before) / 2**20
    sys.stdout.write(
        f"{given.kind}: {len(list(numbers))} cases, seed {given.seed}: {len(findings)} failed; "
        f"{time.monotonic() - started:.0f} s, memory grew by {grown:.0f} MiB\n"
    )
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
