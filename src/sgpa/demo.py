"""The main job: kernel-MLE against SGPA on embedded digits, from nothing to a results file."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import asdict
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import torch
from torch import Tensor

from sgpa.data import Dataset, Splits, digits
from sgpa.evaluation import Outside, Results, Subject, evaluate
from sgpa.files import write_json
from sgpa.fit import RUNS
from sgpa.logs import history, in_words, seconds
from sgpa.methods import Method
from sgpa.models import Transformer
from sgpa.optim import OptimConfig
from sgpa.provenance import provenance
from sgpa.recipes import Recipe
from sgpa.training import Trainer
from sgpa.types import Classification

Announce = Callable[[str, int, int, str], None]  # run, epochs done, epochs in all, what to show
OUTSIDE = "photo-patches"
METHODS = ("sgpa", "mle")  # the longer one first, so that workers finish together


def run(
    recipe: Recipe,
    directory: Path,
    announce: Announce,
    *,
    workers: int | None = None,
    command: str = "sgpa demo",
) -> dict[str, Any]:
    """Train and evaluate both methods for every seed; returns and writes the results.

    A method and a seed make a cell; cells run side by side in `workers` processes, by default one per
    core. What is finished in `directory` is taken from there, what was stopped goes on.
    """
    cells = [(method, seed) for seed in range(recipe.seeds) for method in METHODS]
    workers = min(workers or os.cpu_count() or 1, len(cells))
    if workers == 1:
        found = [cell(recipe, directory, announce, *each) for each in cells]
    else:
        found = _in_parallel(recipe, directory, announce, cells, workers)
    splits = digits.load()
    saved = {
        "schema": 1,
        "title": "Handwritten digits: does the model know when it does not know?",
        "summary": (
            f"A small vision Transformer learns 8 x 8 digits from {len(splits.train)} examples, once by "
            f"maximum likelihood and once as a sparse Gaussian process (SGPA), {recipe.seeds} seeds each. "
            f"Both are tested on {len(splits.test)} clean digits, on noisy and rotated ones, and on patches "
            "of photographs."
        ),
        "records": [record for results in found for record in results.records],
        "curves": [curve for results in found for curve in results.curves],
        "run": {
            "command": command,
            "recipe": asdict(recipe),
            "seconds": {method: _seconds(directory, method) / recipe.seeds for method in METHODS},
            **provenance(),
        },
    }
    write_json(directory / "results.json", saved)
    return saved


def cell(recipe: Recipe, directory: Path, announce: Announce, name: str, seed: int) -> Results:
    """Train and evaluate one method with one seed."""
    splits, outside = digits.load(), digits.photo_patches()
    fit = partial(_fit, recipe, splits, seed, directory, announce)
    if name == "mle":
        model = fit("mle", recipe.mle, recipe.optim, None)
    else:
        warm = fit("warm-start", recipe.mle, recipe.warm, None).state_dict()
        model = fit("sgpa", recipe.sgpa, recipe.sgpa_optim, warm)
    subject = Subject("digits", "kernel", name, seed)
    shifts = _shifts(splits.test)
    results = evaluate(model, subject, splits.test, shifts=shifts, outside={OUTSIDE: Outside(outside)})
    results.draw(subject, "training", "", history(directory / f"{name}-{seed}" / "log.jsonl"))
    if seed == 0:
        results.draw(subject, "examples", "", _examples(model, splits.test, outside))
    return results


def _in_parallel(
    recipe: Recipe, directory: Path, announce: Announce, cells: list[tuple[str, int]], workers: int
) -> list[Results]:
    context = multiprocessing.get_context("spawn")
    with (
        context.Manager() as manager,
        ProcessPoolExecutor(workers, context, torch.set_num_threads, (1,)) as pool,
    ):
        news: Queue[tuple[str, int, int, str]] = manager.Queue()
        tell = partial(_put, news)
        futures = [pool.submit(cell, recipe, directory, tell, *each) for each in cells]
        pending = set(futures)
        while pending:
            pending = wait(pending, timeout=0.2).not_done
            try:
                while True:
                    announce(*news.get_nowait())
            except Empty:
                pass
        return [future.result() for future in futures]


def _put(news: "Queue[tuple[str, int, int, str]]", *line: Any) -> None:
    news.put(line)


def _fit(
    recipe: Recipe,
    splits: Splits,
    seed: int,
    directory: Path,
    announce: Announce,
    name: str,
    method: Method,
    optim: OptimConfig,
    warm: dict[str, Tensor] | None,
) -> Transformer:
    label = f"{name}, seed {seed}"

    def tell(line: dict[str, Any]) -> None:
        announce(label, line["epoch"], optim.epochs, in_words(line, optim.epochs))

    announce(label, 0, optim.epochs, "")
    model = Trainer(
        method=method,
        config=recipe.model,
        optim=optim,
        train=splits.train,
        validation=splits.validation,
        seed=seed,
        directory=directory / f"{name}-{seed}",
        warm=warm,
        report=tell,
    ).fit()
    announce(label, optim.epochs, optim.epochs, "trained")
    return model


def _shifts(test: Dataset) -> dict[str, Callable[[], Dataset]]:
    return {
        f"{name}:{strength}": partial(shift, test, strength)
        for name, shift in digits.SHIFTS.items()
        for strength in digits.STRENGTHS
    }


def _seconds(directory: Path, method: str) -> float:
    """Training time of all seeds, SGPA's warm start included."""
    return sum(seconds(log) for name in RUNS[method] for log in directory.glob(f"{name}-*/log.jsonl"))


def _examples(model: Transformer, test: Dataset, outside: Tensor) -> list[dict[str, Any]]:
    """The same digit clean, noisy and turned, and something that is no digit at all."""
    one = test[:1]
    shown = {
        f"a clean {int(one.targets[0])}": one.inputs,
        "with noise": digits.noisy(one, 4).inputs,
        "turned": digits.rotated(one, 5).inputs,
        "no digit (photo)": outside[:1],
    }
    images = torch.cat([image for image in shown.values() if isinstance(image, Tensor)])  # [4, 1, 8, 8]
    found = model.predict(images)
    assert isinstance(found, Classification)
    return [
        {
            "caption": caption,
            "image": digits.denormalise(images[i, 0]).tolist(),
            "probabilities": found.probabilities[i].tolist(),
            "entropy": float(found.entropy[i]),
            "mutual_information": float(found.mutual_information[i]),
        }
        for i, caption in enumerate(shown)
    ]
