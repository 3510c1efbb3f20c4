"""What uncertainty costs on this machine: a training step and a prediction, methods side by side.

All contenders run in turn, several times over, in one process, so that what else the machine does falls on
all of them alike.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from rich.table import Table

from sgpa.data import Dataset
from sgpa.errors import ConfigError, check_fields, nearest
from sgpa.methods import Calibration
from sgpa.models import PatchConfig, Transformer
from sgpa.objectives import Progress
from sgpa.recipes import Plan, Recipe, find, plan
from sgpa.types import Batch

MODELS = ("digits", "cifar10")  # recipes whose models are timed
BASE = "MLE, kernel attention"
CONTENDERS = {
    "MLE, softmax attention": ("mle", "sdp"),
    BASE: ("mle", "kernel"),
    "MC dropout": ("mcd", "kernel"),
    "SGPA": ("sgpa", "kernel"),
}
BATCH, PREDICTED, ROWS = 100, 20, 45_000  # rows of a step, of a prediction, and of the data set
Job = Callable[[], object]


@dataclass(frozen=True)
class Cost:
    """Seconds of one training step and of one prediction."""

    name: str
    step: float
    predict: float


def measure(model: str = "cifar10", repeats: int = 5) -> list[Cost]:
    """Median seconds of every contender, with the model and the settings of a recipe."""
    if model not in MODELS:
        raise ConfigError(f"unknown model {model!r}{nearest(model, MODELS)}")
    check_fields("bench", [("repeats", repeats, repeats >= 1, "1 or more")])
    recipe = find(model)
    plans = {name: plan(recipe, method, attention) for name, (method, attention) in CONTENDERS.items()}
    steps = medians({name: stepper(recipe, each) for name, each in plans.items()}, repeats)
    predictions = medians({name: predictor(recipe, each) for name, each in plans.items()}, repeats)
    return [Cost(name, steps[name], predictions[name]) for name in plans]


def stepper(recipe: Recipe, plan: Plan) -> Job:
    """One training step on random images."""
    torch.manual_seed(0)
    method, model = plan.trainings[-1].method, build(recipe, plan)
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], fused=True)
    batch = random_images(recipe, BATCH)

    def step() -> None:
        optimiser.zero_grad()
        method.loss(model, batch, Progress(0.5, ROWS)).total.backward()
        optimiser.step()

    return step


def predictor(recipe: Recipe, plan: Plan) -> Job:
    """One prediction: ten samples where the method samples."""
    model = build(recipe, plan).eval()
    batch = random_images(recipe, PREDICTED)
    data = Dataset(batch.inputs, batch.targets)
    found = plan.method.predictor(model, plan.method.calibrate(model, Calibration(data, data)))
    return lambda: found.predict(batch.inputs)


def build(recipe: Recipe, plan: Plan) -> Transformer:
    """A fresh model."""
    return plan.trainings[-1].method.build(recipe.model)


def random_images(recipe: Recipe, rows: int) -> Batch:
    """Images of the size a recipe's model reads."""
    embedding = recipe.model.embedding
    assert isinstance(embedding, PatchConfig)
    shape = (rows, embedding.channels, embedding.image_size, embedding.image_size)
    return Batch(torch.randn(shape), torch.randint(0, recipe.model.outputs, (rows,)))


def medians(jobs: Mapping[str, Job], repeats: int) -> dict[str, float]:
    """Median seconds of every job, the jobs taking turns; the first turn does not count."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(repeats + 1):
        for name, job in jobs.items():
            started = time.perf_counter()
            job()
            if turn:
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in times.items()}


def as_table(costs: list[Cost], model: str) -> Table:
    """Seconds, and how many times those of kernel attention trained by maximum likelihood."""
    base = next(cost for cost in costs if cost.name == BASE)
    title = f"{model} model, {torch.get_num_threads()} threads, torch {torch.__version__}"
    table = Table(title=title, title_justify="left")
    for heading in ("", f"step, batch {BATCH} (s)", "ratio", f"predict {PREDICTED} (s)", "ratio"):
        table.add_column(heading, justify="right" if heading else "left")
    for cost in costs:
        ratios = (cost.step / base.step, cost.predict / base.predict)
        table.add_row(
            cost.name, f"{cost.step:.4f}", f"{ratios[0]:.2f}", f"{cost.predict:.4f}", f"{ratios[1]:.2f}"
        )
    return table
