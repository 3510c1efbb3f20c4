"""The demo: methods and logistic regression compared on embedded digits."""

import os
from collections.abc import Sequence
from pathlib import Path

from sgpa.core.progress import OnProgress
from sgpa.data.images import digits
from sgpa.experiments.recipes import DIGITS, plans
from sgpa.experiments.runner import Outcome, RunFolder, benchmark

METHODS = ("sgpa", "mle")  # the longest training first
CAVEAT = (
    "Training digits are not augmented: with small shifts and rotations both Transformers improve, and on "
    "clean digits MLE is then as good as SGPA."
)


def run(
    directory: Path,
    on_progress: OnProgress,
    *,
    methods: Sequence[str] = METHODS,
    seeds: int = DIGITS.seeds,
    scale: float = 1.0,
    workers: int | None = None,
    command: str = "sgpa demo",
) -> Outcome:
    """Train and test methods for every seed; `scale` multiplies all numbers of epochs.

    What is finished in `directory` is not run again; what was stopped is resumed.
    """
    short = DIGITS.scaled(scale)
    settings = [
        f"{name}.epochs={getattr(short, name).epochs}"
        for name in ("optim", "stage1", "stage2")
        if getattr(short, name) != getattr(DIGITS, name)
    ]
    run_folder = RunFolder.of("digits", directory, [*settings, f"ensembles={min(seeds, DIGITS.ensembles)}"])
    splits = digits.load()
    return benchmark(
        run_folder,
        plans(run_folder.recipe, tuple(methods)),
        seeds=seeds,
        workers=workers or os.cpu_count() or 1,
        on_progress=on_progress,
        baselines=True,
        command=command,
        title="Handwritten digits: does the model know when it does not know?",
        summary=(
            f"A small vision Transformer learns 8 x 8 digits from {len(splits.train)} examples, with "
            f"{len(methods)} methods, {seeds} seeds each. All are tested on {len(splits.test)} clean digits, "
            "on noisy and rotated ones, and on patches of photographs. Logistic regression on the pixels is "
            f"the simple baseline; it does not depend on the seed. {CAVEAT}"
        ),
    )
