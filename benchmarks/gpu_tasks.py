"""The jobs that `benchmarks.gpu` times: a training step or a prediction of one method at one size."""

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
from benchmarks.naive_sgpa import NAME, naive_jobs
from benchmarks.round_robin import ReadyJob
from sgpa.core.inputs import Batch
from sgpa.experiments.recipes import Recipe, find
from sgpa.experiments.timing import BASE, SGPA, SOFTMAX, Job, recipe_prediction, recipe_step, training_step
from sgpa.methods import Method, Mle, Sgpa
from sgpa.models import DotProductConfig, ModelConfig, PatchConfig, SgpaConfig, Transformer
from sgpa.training.optim import OptimConfig

FEATURES = 48  # features of a token of a synthetic sequence


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of models and batches, and how often a job is repeated."""

    recipe: str = "cifar10"
    rows: int = 100  # of a step of the recipe's model
    predicted: int = 200
    lengths: tuple[int, ...] = (64, 512, 2048, 8192)
    whole: int = 2048  # the longest sequence for which the naive T x T matrices fit in memory
    total: int = 16_384  # tokens of a step, for every sequence length
    width: int = 256
    heads: int = 8
    depth: int = 2
    sequence_keys: int = 32  # global keys in the sweep over sequence lengths
    keys: tuple[int, ...] = (8, 16, 32, 64)
    warm_up: int = 6  # the trainer captures its step after a few plain ones
    fewest: int = 5  # repetitions of a timed run
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
    """One job to time; equal tasks are timed once."""

    name: str  # of the contender
    sizes: Sizes
    device: str
    predicts: bool = False  # time a prediction, not a training step
    keys: int = 0  # global keys, for SGPA
    tokens: int = 0  # of synthetic sequences; 0 for the recipe's model

    def __str__(self) -> str:
        sizes = [f"T={self.tokens}"] * bool(self.tokens) + [f"M={self.keys}"] * bool(self.keys)
        return ", ".join([self.name, "prediction" if self.predicts else "step", *sizes])


@contextmanager
def make(task: Task) -> Iterator[ReadyJob]:
    """Compile, warm up and, for a training step, measure its memory.

    Raises RuntimeError if the library warned, for example that a step could not be compiled.
    """
    with library_warnings() as messages, (on_sequences if task.tokens else on_images)(task) as job:
        for _ in range(task.sizes.warm_up):
            once(job, task.device)
        if messages:
            raise RuntimeError(messages[0])
        peak = None if task.predicts else reserved_memory(job, task.device)
        yield ReadyJob(lambda: median(job, task), peak)


@contextmanager
def library_warnings() -> Iterator[list[str]]:
    """The messages of warnings that the library logs inside the block."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("sgpa")
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


@contextmanager
def on_images(task: Task) -> Iterator[Job]:
    """A job on the recipe's model."""
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
    """The recipe with `keys` global keys; 0 leaves it unchanged."""
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
    """Training steps on random sequences of one length. The trainer treats them as images."""
    s, T, device = task.sizes, task.tokens, task.device
    sgpa = Sgpa(attention=SgpaConfig(num_global=s.sequence_keys))
    methods: dict[str, Method] = {
        SOFTMAX: Mle(attention=DotProductConfig()), BASE: Mle(), SGPA: sgpa, NAME: sgpa
    }  # fmt: skip
    method = methods[task.name]
    torch.manual_seed(0)
    model = sequence_model(method, T, s).to(device)
    rows = max(1, s.total // T)
    inputs = torch.randn(rows, T, FEATURES, device=device)
    batch = Batch(inputs, torch.randint(0, 10, (rows,), device=device))
    if task.name == NAME:
        with naive_jobs(sgpa, model, batch, inputs) as jobs:
            yield jobs.step
    else:
        with training_step(method, model, OptimConfig(), batch) as step:
            yield step


def sequence_model(method: Method, tokens: int, sizes: Sizes) -> Transformer:
    """A model whose embedding reads vectors instead of images."""
    images = PatchConfig(image_size=32, patch_size=4)
    config = ModelConfig(embedding=images, depth=sizes.depth, heads=sizes.heads, width=sizes.width)
    model = method.build(config)
    model.embedding = Sequences(tokens, sizes.width)
    return model


def reserved_memory(job: Job, device: str) -> int | None:
    """Peak bytes of GPU memory that the process reserves while steps run; None without a GPU.

    The cache is emptied first, so that memory used only for compilation and capture does not count. Reserved
    memory is measured because a captured step keeps its intermediate results in a private pool, which is
    reserved but not counted as allocated during a replay. It includes whole segments of the allocator and
    workspaces of libraries, and excludes the CUDA context.
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
    """Median seconds of as many repetitions as fit into the time."""
    s = task.sizes
    for _ in range(3):  # the first runs after another process are slower
        once(job, task.device)
    taken: list[float] = []
    while len(taken) < s.fewest or (len(taken) < s.most and sum(taken) < s.seconds):
        taken.append(once(job, task.device))
    return statistics.median(taken)


def once(job: Job, device: str) -> float:
    """Seconds of one run, with synchronisation."""
    started = time.perf_counter()
    job()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - started
