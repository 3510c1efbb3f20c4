"""Write the page about speed from speed.json: tables, targets, and a figure.

Usage: python -m benchmarks.speed.page runs/speed/speed.json [--out docs/results]
Writes speed.md and speed.svg. Ratios are only formed of numbers that one command measured.
"""

import argparse
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.naive_sgpa import NAME
from benchmarks.speed.figure import draw, drawn, gigabytes
from benchmarks.speed.record import Row, read
from benchmarks.speed.targets import TARGETS, Speed
from sgpa.core.files import write_text
from sgpa.experiments.timing import BASE, DROPOUT, SGPA, SOFTMAX

AUTHORS: dict[str, tuple[float | None, ...]] = {  # the authors' public code, unchanged
    SOFTMAX: (13.7, None, 0.52),  # ms of a step and of a prediction on an H200, s of a step on two CPU cores
    BASE: (16.5, None, 0.96),
    DROPOUT: (None, 41.1, None),
    SGPA: (54.0, 86.3, 7.13),
    NAME: (None, None, None),
}
ORDER = tuple(AUTHORS)
KEYS = 32  # global keys of the CIFAR-10 model
INTRODUCTION = """\
# What uncertainty costs

This page has the time of a training step and of a prediction, from `python -m benchmarks.gpu` and `make
time`. Times are medians of repeated runs. Steps are made as the trainer makes them in a long training: on a
GPU they are compiled and captured as CUDA graphs, and so are predictions (`sgpa.serve`). Every ratio uses
numbers that one command measured on one machine, one job at a time. Softmax attention on a GPU is PyTorch's
fused kernel. *SGPA, naive* is a direct implementation of the paper's equations in a plain training loop
(`benchmarks/naive_sgpa.py`); tests check that it gives the same results. MC dropout trains like MLE with
kernel attention, so that step is timed once. MC dropout and SGPA predict with ten samples, MLE with one
pass. Memory is what PyTorch reserves on the device while steps run, including the pool of a captured step
(`benchmarks/gpu_tasks.py`). The CIFAR-10 model here is that of the recipe at the time: SGPA in orthogonal
form, keys without positions, the mean over tokens. The recipe has position-aware keys, learned pooling and
Cheng and Boots' form now, whose step is not timed on this page; the commands time the recipe as it is."""
AFTER_MODEL = """
The authors' columns are their public code on an H200. There, SGPA takes 3.3 times as long as MLE with the
same kernel for a step and 2.1 times as long as MC dropout for a prediction. The paper reports 4.5 times MLE
per training epoch and 4.2 times MC dropout at inference, on an RTX 2080 Ti."""
AFTER_CPU = """
The authors' column is their public code on two cores. It was measured separately: compare its ratio, 7.4
for SGPA / MLE with the same kernel, not its seconds."""
FIGURE = """\
![Cost against the length of the sequences and against the number of global keys](speed.svg)"""


def page(speed: Speed) -> str:
    """The page as Markdown."""
    lines = [INTRODUCTION, "", "## Targets", "", *targets(speed)]
    lines += ["", FIGURE] if drawn(speed.rows) else []
    for title, part, section in SECTIONS:
        lines += ["", f"## {title}", ""]
        lines += section(speed, speed.of(part)) if speed.of(part) else ["Not measured."]
    return "\n".join([*lines, ""])


def paragraph(text: str) -> str:
    """The text wrapped at 118 characters, followed by an empty line."""
    return textwrap.fill(text, 118, break_on_hyphens=False) + "\n"


def targets(speed: Speed) -> Iterator[str]:
    """The table of targets."""
    rows = [
        [t.text, number(t.value(speed), t.unit), f"≤ {t.bound:g}{t.unit}", t.verdict(speed)] for t in TARGETS
    ]
    yield from table(["", "measured", "target", ""], rows)
    ratios = [
        speed.ratio("model", SGPA, BASE, "step"),
        speed.ratio("inducing", SGPA, BASE, "step", keys=KEYS),
    ]
    if None not in ratios:
        first, second = map(number, ratios)
        yield ""
        yield paragraph(
            f"The first ratio was measured twice: {first} in the run of the next section, {second} in that "
            f"of “More global keys” with {KEYS} keys. The table and its verdict have the first."
        ).rstrip()


def by_method(speed: Speed, rows: list[Row]) -> Iterator[str]:
    """The CIFAR-10 model on a GPU."""
    first = rows[0]
    yield paragraph(
        f"{first.tokens} tokens, {first.num_global} global keys per head, batch {first.batch}, prediction of "
        f"{first.predicted} images. {made_with(rows)}"
    )
    headings = ["", "step (ms)", "/ MLE, kernel", "predict (ms)", "/ MC dropout", "peak (GiB)"]
    yield from table(
        [*headings, "authors' step (ms)", "authors' predict (ms)"],
        [
            [
                row.name,
                milliseconds(row, row.step),
                number(speed.ratio("model", row.name, BASE, "step")),
                milliseconds(row, row.predict),
                number(speed.ratio("model", row.name, DROPOUT, "predict")),
                number(gigabytes(row)),
                *(number(ms, digits=1) for ms in AUTHORS[row.name][:2]),
            ]
            for row in in_order(rows)
        ],
    )
    yield AFTER_MODEL


def by_length(speed: Speed, rows: list[Row]) -> Iterator[str]:
    """Longer sequences."""
    first, sizes = rows[0], sorted({row.tokens for row in rows})
    yield paragraph(
        f"Synthetic sequences, {first.tokens * first.batch:,} tokens per step, {first.num_global} global "
        f"keys per head. {made_with(rows)} Milliseconds of a step; in brackets the peak memory in GiB:"
    )
    lines = [
        [name, *(cell(speed.find("tokens", name, T)) for T in sizes)] for name in ORDER if name != DROPOUT
    ]
    for field, text in (("step", "step"), ("peak", "memory")):
        ratios = [speed.ratio("tokens", SGPA, SOFTMAX, field, T) for T in sizes]
        lines.append([f"SGPA / MLE, softmax: {text}", *map(number, ratios)])
    yield from table(["", *(f"T = {T:,}" for T in sizes)], lines)


def by_global_keys(speed: Speed, rows: list[Row]) -> Iterator[str]:
    """More global keys."""
    sizes = sorted({row.num_global for row in rows})
    yield paragraph(
        f"The CIFAR-10 model, batch {rows[0].batch}. {made_with(rows)} Milliseconds of a step; in "
        "brackets the peak memory in GiB:"
    )
    names = (BASE, SGPA, NAME)
    lines = [[name, *(cell(speed.find("inducing", name, keys=M)) for M in sizes)] for name in names]
    for base, text in ((BASE, "MLE, kernel"), (NAME, "naive")):
        ratios = [speed.ratio("inducing", SGPA, base, "step", keys=M) for M in sizes]
        lines.append([f"SGPA / {text}: step", *map(number, ratios)])
    yield from table(["", *(f"M = {M}" for M in sizes)], lines)


def on_a_cpu(speed: Speed, rows: list[Row]) -> Iterator[str]:
    """The same model without a GPU."""
    first = rows[0]
    yield paragraph(
        f"The CIFAR-10 model, batch {first.batch}, prediction of {first.predicted} images, "
        f"{first.run['threads']} threads. {made_with(rows)}"
    )
    headings = ["", "step (s)", "/ MLE, kernel", "/ naive", "predict (s)", "/ MC dropout", "/ naive"]
    yield from table(
        [*headings, "authors' step (s)"],
        [
            [
                row.name,
                number(row.step, digits=3),
                *(number(speed.ratio("cpu", row.name, base, "step")) for base in (BASE, NAME)),
                number(row.predict, digits=3),
                *(number(speed.ratio("cpu", row.name, base, "predict")) for base in (DROPOUT, NAME)),
                number(AUTHORS[row.name][2]),
            ]
            for row in in_order(rows)
        ],
    )
    yield AFTER_CPU


Section = Callable[[Speed, list[Row]], Iterator[str]]
SECTIONS: tuple[tuple[str, str, Section], ...] = (
    ("The CIFAR-10 model on a GPU", "model", by_method),
    ("Longer sequences", "tokens", by_length),
    ("More global keys", "inducing", by_global_keys),
    ("On a CPU", "cpu", on_a_cpu),
)


def in_order(rows: Sequence[Row]) -> list[Row]:
    """The rows in the order of the page."""
    return sorted(rows, key=lambda row: ORDER.index(row.name))


def made_with(rows: Sequence[Row]) -> str:
    """Hardware, version, commit and date of all runs behind the rows."""
    runs = (row.run for row in rows)
    facts = [
        f"{r['hardware']}, torch {r['versions']['torch']}, commit {r['commit']}, {r['date']}" for r in runs
    ]
    return f"Measured on {'; '.join(dict.fromkeys(facts))}."


def milliseconds(row: Row, seconds: float | None) -> str:
    """A time, or the error."""
    return row.error or "–" if seconds is None else number(1e3 * seconds)


def cell(row: Row | None) -> str:
    """Milliseconds of a step and, if measured, memory."""
    if row is None:
        return "–"
    memory = "" if row.peak is None else f" ({number(gigabytes(row), digits=1)})"
    return milliseconds(row, row.step) + memory


def number(value: float | None, unit: str = "", digits: int = 2) -> str:
    """A number for a table."""
    return "–" if value is None else f"{value:,.{digits}f}{unit}"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Markdown: names to the left, numbers to the right."""
    yield f"| {' | '.join(headings)} |"
    yield f"|---{'|--:' * (len(headings) - 1)}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def main(arguments: list[str] | None = None) -> None:
    """Write the page and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    args = parser.parse_args(arguments)
    speed = Speed(tuple(read(args.record)))
    write_text(args.out / "speed.md", page(speed))
    if drawn(speed.rows):
        draw(speed.rows, args.out / "speed.svg")
    print(f"written: {args.out / 'speed.md'}")


if __name__ == "__main__":
    main()
