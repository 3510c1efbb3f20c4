"""Run checks of reliability, keep their last line, and write the table of docs/reliability.md.

Usage: python -m tools.reliability            (write the table from docs/reliability.csv)
       python -m tools.reliability kill soak  (run these checks first; `all` runs every one, for hours)
       python -m tools.reliability kill --outcome "..." --commit abc   (keep the last line of a run)
"""

import argparse
import csv
import re
import shlex
import subprocess
import sys
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE, MEASURED = ROOT / "docs" / "reliability.md", ROOT / "docs" / "reliability.csv"
COLUMNS = ("check", "command", "outcome", "commit", "date")
CHECKS = {
    "api": "python -m tests.fuzz api --count 10000 --seed 43",
    "files": "python -m tests.fuzz files --count 10000 --seed 42",
    "entries": "python -m tests.fuzz entries --every 10",
    "cli": "python -m tests.fuzz cli --count 2000 --seed 44",
    "kill": "python -m tests.kill --kills 100 --terms 50",
    "numerics": "python -m tests.numerics --count 500",
    "multihead": "python -m tests.numerics --multihead --count 500",
    "faults": "python -m pytest -m faults",
    "soak": "python -m tests.soak --minutes 45",
}
BEGIN, END = "<!-- measured: written by tools/reliability.py -->", "<!-- end of measured -->"


def measured() -> dict[str, dict[str, str]]:
    """The last outcome of every check."""
    if not MEASURED.exists():
        return {}
    with MEASURED.open(encoding="utf-8") as file:
        return {row["check"]: row for row in csv.DictReader(file)}


def run(check: str) -> str:
    """Run a check; returns its last line."""
    _, *words = shlex.split(CHECKS[check])
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [line.strip("= ") for line in done.stdout.splitlines() if line.strip()]
    return (lines[-1] if lines else "no output") + (
        "" if done.returncode == 0 else f" (exit {done.returncode})"
    )


def commit_of(name: str = "HEAD") -> str:
    """The short hash of a commit of this repository."""
    asked = ["git", "rev-parse", "--verify", "--short=10", f"{name}^{{commit}}"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def keep(check: str, command: str, outcome: str, commit: str) -> None:
    """Write an outcome to the table of measurements."""
    rows = measured()
    date = datetime.now().astimezone().date().isoformat()
    rows[check] = dict(zip(COLUMNS, (check, command, outcome, commit, date), strict=True))
    with MEASURED.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[name] for name in CHECKS if name in rows)


def table() -> str:
    """The measurements as Markdown."""
    lines = ["| command | outcome | commit | date |", "|---|---|---|---|"]
    for row in measured().values():
        lines.append(f"| `{row['command']}` | {row['outcome']} | {row['commit']} | {row['date']} |")
    return "\n".join(lines)


def written(text: str) -> str:
    """The page with its table up to date."""
    return re.sub(
        f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}\n{table()}\n{END}", text, flags=re.S
    )


def main() -> None:
    """Run what is asked for and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checks", nargs="*", help=f"of {', '.join(CHECKS)}, or all")
    parser.add_argument("--command", help="the command that gave --outcome, if it had other numbers")
    parser.add_argument("--outcome", help="instead of running the check")
    parser.add_argument("--commit", default="HEAD", help="where the check was run")
    given = parser.parse_args()
    for check in CHECKS if given.checks == ["all"] else given.checks:
        commit = commit_of(given.commit)  # before the check: the repository may change while it runs
        keep(check, given.command or CHECKS[check], given.outcome or run(check), commit)
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
