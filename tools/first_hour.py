"""The first hour of a new user: seven tasks from the documentation, with an installed wheel, elsewhere.

Usage: python -m tools.first_hour WHEEL FOLDER [--tasks 2 5 6] [--page]

`FOLDER` holds what a user brings: `photos/` (a sub-folder per class), `holiday/` (new photographs),
`my-model/` (a Hugging Face classifier) and `reviews.csv`. The first call installs the wheel into a new
environment there. Commands and code are taken from the pages, so that what runs is what is printed. Times are
kept in `first-hour.json` in that folder; `--page` writes docs/guides/first-hour.md.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgpa.core.files import write_text
from sgpa.core.provenance import provenance

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "guides" / "first-hour.md"
KEPT = "first-hour.json"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A task: commands that are printed on a page, or its blocks of Python code."""

    title: str
    page: str  # from the root of the repository
    commands: tuple[str, ...] = ()
    blocks: tuple[int, ...] = ()


JOBS = (
    Job(title="See it work", page="docs/README.md", commands=("sgpa predict digits", "sgpa demo")),
    Job(title="The layer in an own model", page="docs/guides/layer.md", blocks=(0, 1, 2, 3)),
    Job(
        title="Own images to an answer with its reason",
        page="docs/guides/own-data.md",
        commands=("sgpa train images photos/", "sgpa predict runs/photos holiday/"),
    ),
    Job(
        title="A Hugging Face model audited",
        page="docs/guides/audit.md",
        commands=("sgpa audit my-model reviews.csv",),
    ),
    Job(title="Add a method", page="docs/guides/extend.md", blocks=(0, 1)),
    Job(title="Add a kernel", page="docs/guides/extend.md", blocks=(2,)),
    Job(
        title="One row of the results",
        page="docs/results/README.md",
        commands=("sgpa benchmark digits --methods mle --seeds 1",),
    ),
)


def code_of(job: Job) -> str:
    """The Python code of a task, from its page."""
    text = (ROOT / job.page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    return "\n".join(blocks[i] for i in job.blocks)


def shown(job: Job) -> list[str]:
    """What a task runs, as the page of times names it."""
    return list(job.commands) or [f"{len(code_of(job).splitlines())} lines of Python"]


def install(wheel: Path, folder: Path) -> dict[str, float]:
    """Make an environment and install torch, the wheel, and transformers for the audit."""
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    pip = [folder.absolute() / "env" / "bin" / "pip", "install", "--quiet"]
    return timed([[*pip, "torch"], [*pip, wheel], [*pip, "transformers"]], folder, "Install")


def run(job: Job, folder: Path) -> dict[str, float]:
    """Run a task in the folder, with the environment there."""
    commands = [command.split() for command in job.commands] or [["python", "-c", code_of(job)]]
    return timed(commands, folder, job.title)


def timed(commands: Sequence[Sequence[str | Path]], folder: Path, title: str) -> dict[str, float]:
    """Run commands one after another: seconds of the clock and of processors."""
    search = f"{folder.absolute() / 'env' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PATH": search}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    for command in commands:
        done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{title}: failed\n{done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"clock": time.perf_counter() - started, "cpu": used}


def page(times: dict[str, dict[str, float]], about: dict[str, Any]) -> str:
    """The page of times."""
    typed = "`pip install torch`, the wheel, `pip install transformers`"
    rows = [f"| Install | [README.md](../README.md#install) | {typed} | {cells(times, 'Install')} |"]
    for job in JOBS:
        what = "<br>".join(f"`{line}`" if job.commands else line for line in shown(job))
        to = f"[{Path(job.page).name}]({link(job.page)})"
        rows.append(f"| {job.title} | {to} | {what} | {cells(times, job.title)} |")
    facts = about["versions"] | {name: about[name] for name in ("date", "commit", "hardware")}
    return TEXT.format(rows="\n".join(rows), **facts)


def cells(times: dict[str, dict[str, float]], title: str) -> str:
    """Seconds of the clock and of processors, as cells of a table."""
    return f"{times[title]['clock']:.0f} | {times[title]['cpu']:.0f}" if title in times else "not measured |"


def link(page: str) -> str:
    """A page, relative to the page of times."""
    return os.path.relpath(ROOT / page, PAGE.parent)


TEXT = """# The first hour

How long does it take to try everything once? Eight tasks, each exactly as its page prints it, with the wheel
in a new virtual environment, in an empty folder outside the repository. `python -m tools.first_hour` runs
them and writes this page.

| task | page | what is typed or run | seconds | CPU seconds |
|---|---|---|--:|--:|
{rows}

Measured until {date}, commit {commit}, {hardware}, Python {python}, torch {torch}.
The machine did nothing else, and torch used both cores. Packages came from an index nearby.

Inputs not supplied by the docs: 300 photographs of three classes of CIFAR-10 and 34 others, the beginnings
of 160 film reviews, and a classifier of reviews made of MiniLM and a small head. In a terminal every command
shows a bar with the time left; in a file, a line every half minute.
"""


def main() -> None:
    """Run the tasks and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", type=int, nargs="*", default=range(1, len(JOBS) + 1))
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    file = options.folder / KEPT
    if not (options.folder / "env").exists():
        keep(file, "Install", install(options.wheel, options.folder))
    for number in options.tasks:
        keep(file, JOBS[number - 1].title, run(JOBS[number - 1], options.folder))
    if options.page:
        kept = json.loads(file.read_text(encoding="utf-8"))
        write_text(PAGE, page(kept["times"], kept["about"]))


def keep(file: Path, title: str, times: dict[str, float]) -> None:
    """Add the times of a task to those of others."""
    kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"times": {}}
    kept["times"][title] = times
    write_text(file, json.dumps(kept | {"about": provenance()}, indent=1))
    print(f"{title}: {times['clock']:.0f} s, {times['cpu']:.0f} CPU s")


if __name__ == "__main__":
    main()
