"""The cost of a training step and of a prediction on this machine, methods side by side.

Steps are those of the trainer, predictions those of the method. All contenders run in turn, several times,
in one process, so that other work of the machine affects all of them alike.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

import torch

from sgpa.core.errors import ConfigError, check_fields, nearest
from sgpa.core.inputs import Batch, Inputs
from sgpa.data import Dataset
from sgpa.experiments.recipes import Recipe, find, plan
from sgpa.gp.objective import Progress
from sgpa.inference.serve import serve
from sgpa.methods import Calibration, DropoutPredictor, Method
from sgpa.models import ModelConfig, PatchConfig, Transformer
from sgpa.training.optim import OptimConfig, adam
from sgpa.training.steps.base import RunState, StepInfo, random_state
from sgpa.training.steps.choose import choose_step

MODELS = ("digits", "cifar10")  # recipes whose models are timed
SOFTMAX, BASE, DROPOUT, SGPA = "MLE, softmax attention", "MLE, kernel attention", "MC dropout", "SGPA"
CONTENDERS = {
    SOFTMAX: ("mle", "sdp"),
    BASE: ("mle", "kernel"),
    DROPOUT: ("mcd", "kernel"),
    SGPA: ("sgpa", "kernel"),
}
BATCH, PREDICTED, ROWS = 100, 20, 45_000  # rows of a step, of a prediction, and of the data set
Job = Callable[[], object]


@dataclass(frozen=True)
class Jobs:
    """What is timed of a contender: a training step and a prediction."""

    step: Job
    predict: Job


@dataclass(frozen=True)
class Cost:
    """Seconds of one training step and of one prediction."""

    name: str
    step: float
    predict: float


Contender = Callable[[], AbstractContextManager[Jobs]]  # set up when it is entered


def measure(
    model: str = "cifar10", repeats: int = 5, others: Mapping[str, Contender] | None = None
) -> list[Cost]:
    """Median seconds of every contender, with the model and the settings of a recipe, and of `others`."""
    if model not in MODELS:
        raise ConfigError(f"unknown model {model!r}{nearest(model, MODELS)}")
    check_fields("time", [("repeats", repeats, repeats >= 1, "1 or more")])
    makers = contenders(find(model)) | dict(others or {})
    with ExitStack() as stack:
        jobs = {name: stack.enter_context(make()) for name, make in makers.items()}
        steps = medians({name: job.step for name, job in jobs.items()}, repeats)
        predictions = medians({name: job.predict for name, job in jobs.items()}, repeats)
    return [Cost(name, steps[name], predictions[name]) for name in jobs]


def contenders(recipe: Recipe) -> dict[str, Contender]:
    """The methods of `CONTENDERS` on random images."""

    def maker(name: str) -> Contender:
        @contextmanager
        def make() -> Iterator[Jobs]:
            with recipe_step(recipe, name, BATCH, "cpu") as step:
                yield Jobs(step, recipe_prediction(recipe, name, PREDICTED, "cpu"))

        return make

    return {name: maker(name) for name in CONTENDERS}


@contextmanager
def recipe_step(recipe: Recipe, name: str, rows: int, device: str) -> Iterator[Job]:
    """A step of a contender's last training."""
    training = plan(recipe, *CONTENDERS[name]).stages[-1]
    torch.manual_seed(0)
    model = training.method.build(training.model(recipe.model)).to(device)
    batch = random_images(recipe.model, rows).to(device)
    with training_step(training.method, model, training.optim, batch) as step:
        yield step


def recipe_prediction(recipe: Recipe, name: str, rows: int, device: str) -> Job:
    """A prediction of a contender with initial weights."""
    planned = plan(recipe, *CONTENDERS[name])
    training = planned.stages[-1]
    method = training.method
    torch.manual_seed(0)
    model = method.build(training.model(recipe.model)).to(device)
    batch = random_images(recipe.model, rows).to(device)
    method.initialise(model, batch)
    return prediction(planned.method, model, batch.inputs)


@contextmanager
def training_step(method: Method, model: Transformer, optim: OptimConfig, batch: Batch) -> Iterator[Job]:
    """One step on the batch, of the kind that the trainer chooses for this model and device."""
    method.initialise(model.train(), batch)
    optimiser = adam(optim, model, dict(model.named_parameters()))
    state = RunState("bench", model, optimiser, random_state())
    moment = StepInfo(0, optim.lr, Progress(0.5, ROWS))
    chosen = choose_step(state, method, optim, steps=optim.epochs * ROWS // len(batch))
    with chosen:
        yield lambda: chosen.step(batch, moment)
    chosen.close()


def prediction(method: Method, model: Transformer, inputs: Inputs) -> Job:
    """One prediction: ten samples where the method samples; on a GPU by a service set up before."""
    data = Dataset(inputs, torch.zeros(len(inputs), dtype=torch.long, device=model.device))
    predictor = method.predictor(model, method.calibrate(model, Calibration(data, data)))
    if model.device.type == "cuda" and isinstance(predictor, Transformer | DropoutPredictor):
        served = serve(predictor, len(inputs))
        return lambda: served.predict(inputs)
    return lambda: predictor.predict(inputs)


def random_images(config: ModelConfig, rows: int) -> Batch:
    """Images of the size a model reads."""
    embedding = config.embedding
    assert isinstance(embedding, PatchConfig)
    shape = (rows, embedding.channels, embedding.image_size, embedding.image_size)
    return Batch(torch.randn(shape), torch.randint(0, config.outputs, (rows,)))


def medians(jobs: Mapping[str, Job], repeats: int) -> dict[str, float]:
    """Median seconds of every job; jobs take turns, and the first turn does not count."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(repeats + 1):
        for name, job in jobs.items():
            started = time.perf_counter()
            job()
            if turn:
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in times.items()}
