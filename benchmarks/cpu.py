"""Time a training step and a prediction of the paper's CIFAR-10 model on the CPU, by method.

Usage: python -m benchmarks.cpu [--model cifar10] [--repeats 5] [--threads 2] [--out FOLDER]
Prints a table. With --out the numbers are also written to speed.json there, for benchmarks.speed.page.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.naive_sgpa import NAME, naive_jobs
from benchmarks.speed.record import Record, Row
from sgpa.cli.time import as_table
from sgpa.core.inputs import Batch, tensors_of
from sgpa.experiments.recipes import Recipe, find, plan
from sgpa.experiments.timing import (
    BASE,
    BATCH,
    MODELS,
    PREDICTED,
    Contender,
    Jobs,
    measure,
    random_images,
)
from sgpa.methods import Sgpa


def sparse(recipe: Recipe) -> Sgpa:
    """The SGPA method of a recipe."""
    method = plan(recipe, "sgpa").stages[-1].method
    assert isinstance(method, Sgpa)
    return method


def contender(recipe: Recipe, method: Sgpa, rows: int, predicted: int, device: str = "cpu") -> Contender:
    """The naive SGPA on random images."""

    @contextmanager
    def make() -> Iterator[Jobs]:
        torch.manual_seed(0)
        batch = random_images(recipe.model, max(rows, predicted)).to(device)
        (x,), y = tensors_of(batch.inputs), batch.targets
        model = method.build(recipe.model).to(device)
        with naive_jobs(method, model, Batch(x[:rows], y[:rows]), x[:predicted]) as jobs:
            yield jobs

    return make


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="cifar10")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    recipe = find(args.model)
    method = sparse(recipe)
    plain = contender(recipe, method, BATCH, PREDICTED)
    costs = measure(args.model, args.repeats, {NAME: plain})
    Console(width=100).print(as_table(costs, args.model, {"/ MLE": BASE, "/ naive": NAME}))
    if args.out is not None:
        record, M = Record(args.out), method.attention.num_global
        tokens = recipe.model.embedding.max_tokens
        for cost in costs:
            row = Row(part="cpu", name=cost.name, tokens=tokens, num_global=M, batch=BATCH)
            record.add(replace(row, predicted=PREDICTED, step=cost.step, predict=cost.predict))


if __name__ == "__main__":
    main()
