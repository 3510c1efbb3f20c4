"""Write a page about one long training: times, losses and validation by epoch.

Usage: python -m tools.training_page runs/cifar10/trainings [--attention kernel] [--seed 0]
       [--commit 1a2b3c4] [--hardware "NVIDIA H200"] [--date 2026-11-15] [--out docs/results]
Reads the logs of stage 1 (MLE) and of SGPA; writes full-training.csv, .svg and .md.
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
STAGES = {"warm": "MLE", "sgpa": "SGPA"}  # in folder names of trainings, in order
COLUMNS = ("stage", "epoch", "lr", "seconds", "nll", "kl_g", "kl_a", "validation_accuracy", "validation_nll")
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Stage:
    """The log of one stage."""

    stage: str
    epochs: Rows
    before: int  # epochs of earlier stages

    @property
    def validated(self) -> Rows:
        """The epochs after which the model was validated."""
        return [row for row in self.epochs if row.get("validation")]

    @property
    def best(self) -> dict[str, Any]:
        """The epoch with the lowest validation NLL, which is kept."""
        return min(self.validated, key=lambda row: row["validation"]["nll"])

    @property
    def median_seconds(self) -> float:
        """Median seconds of an epoch."""
        return statistics.median(row["seconds"] for row in self.epochs)


def read(folder: Path, attention: str, seed: int) -> list[Stage]:
    """The logs of both stages."""
    stages, before = [], 0
    for stage in STAGES:
        epochs = list(read_log(folder / f"{attention}-{stage}-{seed}" / "log.jsonl"))
        stages.append(Stage(stage, epochs, before))
        before += len(epochs)
    return stages


def table(trainings: Sequence[Stage]) -> str:
    """One line per epoch, as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for training in trainings:
        for row in training.epochs:
            validation = row.get("validation") or {}
            values = [row[name] for name in COLUMNS[1:7]] + [
                validation.get("accuracy"),
                validation.get("nll"),
            ]
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
        label, validated, every = STAGES[training.stage], training.validated, training.epochs
        shown = {"color": colour, "marker": ".", "label": f"{label}, validation"}
        ring = {"color": colour, "marker": "o", "ms": 9, "mfc": "none"}
        _curve(nll, training, every, lambda row: row["nll"], color=colour, ls=":", label=f"{label}, training")
        _curve(nll, training, validated, lambda row: row["validation"]["nll"], **shown)
        _curve(nll, training, [training.best], lambda row: row["validation"]["nll"], **ring)
        _curve(accuracy, training, validated, lambda row: row["validation"]["accuracy"], **shown)
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
    """The page as Markdown."""
    total = sum(row["seconds"] for training in trainings for row in training.epochs)
    epochs = sum(len(training.epochs) for training in trainings)
    lines = [
        "# A full training",
        "",
        f"`sgpa train cifar10 --method sgpa --seed 0 --device cuda`: {epochs} epochs of the recipe. "
        f"Measured on {run['hardware']}, commit {run['commit']}, {run['date']}.",
        "",
        "|  | epochs | seconds | seconds per epoch | first epoch, with compilation "
        "| validation NLL: kept, last | accuracy: kept, last |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for training in trainings:
        kept, last = training.best, training.validated[-1]
        lines.append(
            f"| {STAGES[training.stage]} | {len(training.epochs)} | "
            f"{sum(row['seconds'] for row in training.epochs):.0f} | {training.median_seconds:.2f} | "
            f"{training.epochs[0]['seconds']:.0f} | {kept['validation']['nll']:.3f} (epoch {kept['epoch']}), "
            f"{last['validation']['nll']:.3f} | {kept['validation']['accuracy']:.4f}, "
            f"{last['validation']['accuracy']:.4f} |"
        )
    lines += [
        "",
        f"Both stages take {total / 60:.1f} minutes. [{NAME}.csv]({NAME}.csv) has one line per epoch.",
    ]
    return "\n".join([*lines, "", f"![Training and validation by epoch]({NAME}.svg)", ""])


def main(arguments: list[str] | None = None) -> None:
    """Read the logs and write table, figure and page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of trainings of a run")
    parser.add_argument("--attention", default="kernel")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    for fact in ("commit", "hardware", "date"):
        parser.add_argument(f"--{fact}", help="overrides the current value")
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
