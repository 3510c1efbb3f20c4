"""A page about one long training: how long it took, and what became of the model on the way.

Usage: python -m tools.training_page runs/cifar10/trainings [--attention kernel] [--seed 0]
       [--commit 1a2b3c4] [--hardware "NVIDIA H200"] [--date 2026-11-15] [--out docs/results]
Reads the logs of the warm start and of SGPA; writes full-training.csv, .svg and .md.
"""

import argparse
import csv
import io
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgpa.core.files import write_text
from sgpa.core.provenance import provenance
from sgpa.report.figures.style import LOOKS, blank, legend, panels, styled
from sgpa.training.logs import read_log

NAME = "full-training"
STAGES = {"warm": "MLE", "sgpa": "SGPA"}  # of the recipe, in order
COLUMNS = ("stage", "epoch", "lr", "seconds", "nll", "kl_g", "kl_a", "validation_accuracy", "validation_nll")
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Stage:
    """The epochs of one stage, and where they are in the whole training."""

    stage: str
    epochs: Rows
    before: int  # epochs of earlier stages

    @property
    def looked(self) -> Rows:
        """The epochs after which the model was validated."""
        return [row for row in self.epochs if row.get("validation")]

    @property
    def best(self) -> dict[str, Any]:
        """The epoch that is kept."""
        return min(self.looked, key=lambda row: row["validation"]["nll"])

    @property
    def usual(self) -> float:
        """Seconds of an epoch."""
        return statistics.median(row["seconds"] for row in self.epochs)


def read(folder: Path, attention: str, seed: int) -> list[Stage]:
    """The two stages."""
    found, before = [], 0
    for stage in STAGES:
        epochs = list(read_log(folder / f"{attention}-{stage}-{seed}" / "log.jsonl"))
        found.append(Stage(stage, epochs, before))
        before += len(epochs)
    return found


def table(trainings: Sequence[Stage]) -> str:
    """One line an epoch, as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for training in trainings:
        for row in training.epochs:
            looked = row.get("validation") or {}
            values = [row[name] for name in COLUMNS[1:7]] + [looked.get("accuracy"), looked.get("nll")]
            cells = ["" if value is None else f"{value:.6g}" for value in values]
            writer.writerow([training.stage, *cells])
    return text.getvalue()


def _curve(
    axes: Any, training: Stage, rows: Rows, value: Callable[[dict[str, Any]], float], **options: Any
) -> None:
    axes.plot([training.before + row["epoch"] for row in rows], [value(row) for row in rows], **options)


@styled
def draw(trainings: Sequence[Stage], path: Path) -> None:
    """Negative log-likelihood, accuracy and KL by epoch."""
    figure = blank(6.6)
    nll, accuracy, kl = axes = panels(figure, 3, columns=1)
    for training in trainings:
        colour = LOOKS[{"warm": "mle"}.get(training.stage, training.stage)].colour
        label, looked, every = STAGES[training.stage], training.looked, training.epochs
        shown = {"color": colour, "marker": ".", "label": f"{label}, validation"}
        ring = {"color": colour, "marker": "o", "ms": 9, "mfc": "none"}
        _curve(nll, training, every, lambda row: row["nll"], color=colour, ls=":", label=f"{label}, training")
        _curve(nll, training, looked, lambda row: row["validation"]["nll"], **shown)
        _curve(nll, training, [training.best], lambda row: row["validation"]["nll"], **ring)
        _curve(accuracy, training, looked, lambda row: row["validation"]["accuracy"], **shown)
        if training.stage == "sgpa":
            _curve(kl, training, every, lambda row: row["kl_a"], color=colour, label="KL, amortised")
            _curve(kl, training, every, lambda row: row["kl_g"], color=colour, ls="--", label="KL, global")
    nll.set(title="Negative log-likelihood; ring: the epoch kept", ylabel="nats", ylim=(0, 1.3))
    accuracy.set(title="Accuracy on validation images", ylim=(0.6, 0.82))
    kl.set(title="KL of a sequence and of the global keys", xlabel="epoch", ylabel="nats", yscale="log")
    for panel in axes:
        panel.set_xlim(0, 1.02 * sum(len(training.epochs) for training in trainings))
    legend(figure, axes)
    figure.savefig(path, format="svg", metadata={"Date": None})


def page(trainings: Sequence[Stage], run: dict[str, Any]) -> str:
    """All of it, as Markdown."""
    total = sum(row["seconds"] for training in trainings for row in training.epochs)
    epochs = sum(len(training.epochs) for training in trainings)
    lines = [
        "# A full training",
        "",
        f"`sgpa train cifar10 --method sgpa --seed 0 --device cuda`: {epochs} epochs of the recipe as it is. "
        f"Measured on {run['hardware']}, commit {run['commit']}, {run['date']}.",
        "",
        "|  | epochs | seconds | an epoch | first epoch, with compilation | validation NLL: kept, last |"
        " accuracy: kept, last |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for training in trainings:
        kept, last = training.best, training.looked[-1]
        lines.append(
            f"| {STAGES[training.stage]} | {len(training.epochs)} | "
            f"{sum(row['seconds'] for row in training.epochs):.0f} | {training.usual:.2f} | "
            f"{training.epochs[0]['seconds']:.0f} | {kept['validation']['nll']:.3f} (epoch {kept['epoch']}), "
            f"{last['validation']['nll']:.3f} | {kept['validation']['accuracy']:.4f}, "
            f"{last['validation']['accuracy']:.4f} |"
        )
    lines += ["", f"Together {total / 60:.1f} minutes of epochs; `{NAME}.csv` has every one of them."]
    return "\n".join([*lines, "", f"![Training and validation by epoch]({NAME}.svg)", ""])


def main(arguments: list[str] | None = None) -> None:
    """Read, draw and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the trainings of a recipe")
    parser.add_argument("--attention", default="kernel")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    for fact in ("commit", "hardware", "date"):
        parser.add_argument(f"--{fact}", help="if it is not this tree's, this machine's or today's")
    args = parser.parse_args(arguments)
    trainings = read(args.folder, args.attention, args.seed)
    run = provenance() | {k: v for k in ("commit", "hardware", "date") if (v := getattr(args, k))}
    args.out.mkdir(parents=True, exist_ok=True)
    write_text(args.out / f"{NAME}.csv", table(trainings))
    draw(trainings, args.out / f"{NAME}.svg")
    write_text(args.out / f"{NAME}.md", page(trainings, run))
    print(f"written: {args.out / NAME}.md")


if __name__ == "__main__":
    main()
