"""What `benchmarks.gpu` times: a training step or a prediction of one contender at one size."""

import gc
import logging
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from benchmarks.cpu import contender, sparse
from benchmarks.naive_sgpa import NAME, obvious
from benchmarks.round_robin import CalibratedMethod
from sgpa.core.inputs import Batch
from sgpa.experiments.recipes import Recipe, find
from sgpa.experiments.timing import BASE, SGPA, SOFTMAX, Job, recipe_prediction, recipe_step, training_step
from sgpa.methods import Method, Mle, Sgpa
from sgpa.models import DotProductConfig, ModelConfig, PatchConfig, SgpaConfig, Transformer
from sgpa.training.optim import OptimConfig

FEATURES = 48  # numbers a token of a synthetic sequence brings


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large everything is, and how long a job is repeated."""

    recipe: str = "cifar10"
    rows: int = 100  # of a step of the recipe's model
    predicted: int = 200
    lengths: tuple[int, ...] = (64, 512, 2048, 8192)
    whole: int = 2048  # tokens up to which matrices of all pairs of them fit
    total: int = 16_384  # tokens of a step, whatever the length of the sequences
    width: int = 256
    heads: int = 8
    depth: int = 2
    sequence_keys: int = 32  # global keys where the sequences get longer
    keys: tuple[int, ...] = (8, 16, 32, 64)
    warm_up: int = 6  # the trainer records its step after a few plain ones
    fewest: int = 5  # repetitions of a turn
    most: int = 50
    seconds: float = 0.4


QUICK = Sizes(
    recipe="digits",
    rows=20,
    predicted=10,
    lengths=(16, 64),
    whole=16,
    total=128,
    width=16,
    heads=2,
    sequence_keys=8,
    keys=(4, 8),
    warm_up=1,
    fewest=2,
    most=3,
)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One thing to time; tasks that are equal are timed once."""

    name: str  # of the contender
    sizes: Sizes
    device: str
    predicts: bool = False  # or makes a training step
    keys: int = 0  # global keys, where the contender has any
    tokens: int = 0  # of synthetic sequences; 0 is the recipe's model

    def __str__(self) -> str:
        sizes = [f"T={self.tokens}"] * bool(self.tokens) + [f"M={self.keys}"] * bool(self.keys)
        return ", ".join([self.name, "prediction" if self.predicts else "step", *sizes])


@contextmanager
def make(task: Task) -> Iterator[CalibratedMethod]:
    """Compile, warm up and, of a training step, look at the memory it holds.

    A step or prediction that could not be compiled or recorded takes a slower way and warns: no number then.
    """
    with warnings() as heard, (on_sequences if task.tokens else on_images)(task) as job:
        for _ in range(task.sizes.warm_up):
            once(job, task.device)
        if heard:
            raise RuntimeError(heard[0])
        peak = None if task.predicts else held(job, task.device)
        yield CalibratedMethod(lambda: median(job, task), peak)


@contextmanager
def warnings() -> Iterator[list[str]]:
    """What the library warns of inside the block."""
    heard: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("sgpa")
    logger.addHandler(handler)
    try:
        yield heard
    finally:
        logger.removeHandler(handler)


@contextmanager
def on_images(task: Task) -> Iterator[Job]:
    """The recipe's model."""
    s, recipe = task.sizes, recipe_with(task.sizes.recipe, task.keys)
    if task.name == NAME:
        with contender(recipe, sparse(recipe), s.rows, s.predicted, task.device)() as jobs:
            yield jobs.predict if task.predicts else jobs.step
    elif task.predicts:
        yield recipe_prediction(recipe, task.name, s.predicted, task.device)
    else:
        with recipe_step(recipe, task.name, s.rows, task.device) as step:
            yield step


def recipe_with(name: str, keys: int) -> Recipe:
    """A recipe with another number of global keys; 0 leaves it as it is."""
    recipe = find(name)
    given = replace(recipe.sgpa, attention=replace(recipe.sgpa.attention, num_global=keys or 1))
    return replace(recipe, sgpa=given) if keys else recipe


class Sequences(nn.Module):
    """T vectors, projected, plus learned positions: [B, T, FEATURES] -> [B, T, E], no padding."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(FEATURES, width)
        self.positions = nn.Parameter(0.1 * torch.randn(tokens, width))

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        """Tokens."""
        return self.project(x) + self.positions, None


@contextmanager
def on_sequences(task: Task) -> Iterator[Job]:
    """Training steps of a model that reads random sequences: for the trainer images, all of one length."""
    s, T, device = task.sizes, task.tokens, task.device
    sgpa = Sgpa(attention=SgpaConfig(num_global=s.sequence_keys))
    methods: dict[str, Method] = {
        SOFTMAX: Mle(attention=DotProductConfig()), BASE: Mle(), SGPA: sgpa, NAME: sgpa
    }  # fmt: skip
    method = methods[task.name]
    torch.manual_seed(0)
    model = reading_sequences(method, T, s).to(device)
    rows = max(1, s.total // T)
    inputs = torch.randn(rows, T, FEATURES, device=device)
    batch = Batch(inputs, torch.randint(0, 10, (rows,), device=device))
    if task.name == NAME:
        with obvious(sgpa, model, batch, inputs) as jobs:
            yield jobs.step
    else:
        with training_step(method, model, OptimConfig(), batch) as step:
            yield step


def reading_sequences(method: Method, tokens: int, sizes: Sizes) -> Transformer:
    """A model with an embedding of its own."""
    images = PatchConfig(image_size=32, patch_size=4)
    config = ModelConfig(embedding=images, depth=sizes.depth, heads=sizes.heads, width=sizes.width)
    model = method.build(config)
    model.embedding = Sequences(tokens, sizes.width)
    return model


def held(job: Job, device: str) -> int | None:
    """Bytes of the GPU that the process holds while steps are made; None where there is no GPU.

    It is what PyTorch's allocator has reserved at most, after what compilation and recording had left behind
    was given back. A recorded step keeps its intermediate results in a pool of its own, which is reserved but
    not counted as allocated while the step is replayed; a plain step allocates them anew. Both are counted
    here in whole segments of the allocator, with the room between tensors and the workspaces of libraries.
    The CUDA context is not counted, nor what is needed once, for compiling.
    """
    if not device.startswith("cuda"):
        return None
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(3):
        once(job, device)
    return int(torch.cuda.max_memory_reserved())


def median(job: Job, task: Task) -> float:
    """Median seconds, of as many repetitions as fit."""
    s = task.sizes
    for _ in range(3):  # what follows another process's turn does not count
        once(job, task.device)
    taken: list[float] = []
    while len(taken) < s.fewest or (len(taken) < s.most and sum(taken) < s.seconds):
        taken.append(once(job, task.device))
    return statistics.median(taken)


def once(job: Job, device: str) -> float:
    """Seconds until the device has done it."""
    started = time.perf_counter()
    job()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - started
