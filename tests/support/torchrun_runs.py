"""Small trainings for test_distributed.py, started by torchrun as: torchrun_runs.py WHAT FOLDER."""

import json
import os
import runpy
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import torch

from sgpa.core.errors import NumericalError
from sgpa.core.inputs import Graphs, Words
from sgpa.data import Dataset
from sgpa.experiments.recipes import plans
from sgpa.experiments.runner import RunFolder, benchmark
from sgpa.methods import Mfvi, Mle, Sgpa, Sngp
from sgpa.models import (
    DotProductConfig,
    GraphConfig,
    MeanFieldConfig,
    ModelConfig,
    PatchConfig,
    SgpaConfig,
    TokenConfig,
    WordsConfig,
)
from sgpa.training.optim import OptimConfig
from sgpa.training.plan import plan_of
from sgpa.training.steps import distributed
from sgpa.training.trainer import Trainer

ROWS = 33  # the last of the batches of 8 has one row: nothing is left for the second process
OPTIM = OptimConfig(epochs=3, batch_size=8, lr=5e-3, select_every=2)
CONFIG = ModelConfig(
    embedding=PatchConfig(image_size=4, channels=1, patch_size=2), depth=2, heads=2, width=8, outputs=3
)
SGPA = Sgpa(attention=SgpaConfig(num_global=3))
MFVI = Mfvi(weights=MeanFieldConfig(initial_std=0.05))


def generator(seed):
    return torch.Generator().manual_seed(seed)


def classes(n):
    return torch.arange(n) % 3


def images(n=ROWS):
    y = classes(n)
    return torch.randn(n, 1, 4, 4, generator=generator(0)) + 2.0 * (y - 1).view(-1, 1, 1, 1), y


def texts(n=ROWS):
    """Sentences of two to eight words; most batches are narrower than the whole."""
    lengths = torch.randint(2, 9, (n,), generator=generator(0))
    ids = torch.randint(1, 20, (n, 12), generator=generator(1))
    ids[torch.arange(12) >= lengths.unsqueeze(1)] = 0
    return ids, classes(n), lengths


def words(n=ROWS):
    ids, y, lengths = texts(n)
    return Words(ids, torch.randn(n, 12, 2, 5, generator=generator(2))), y, lengths


def graphs(n=ROWS):
    """Paths of two or three nodes."""
    long = torch.rand(n, 1, generator=generator(3)) < 0.5
    nodes = torch.randint(0, 4, (n, 3), generator=generator(4))
    nodes[:, 2:] = torch.where(long, nodes[:, 2:], -1)
    edges = torch.tensor([[0, 1], [1, 0], [1, 2], [2, 1]]).repeat(n, 1, 1)
    types = torch.randint(0, 3, (n, 4), generator=generator(5))
    types[:, 2:] = torch.where(long, types[:, 2:], -1)
    edges[types < 0] = -1
    return Graphs(nodes, edges, types, torch.randn(n, 3, 3, generator=generator(6))), nodes.float().sum(1)


def mirrored(inputs, noise):
    """An augmentation that draws for every row."""
    coin = torch.rand(len(inputs), 1, 1, 1, generator=noise, device=noise.device) < 0.5
    return torch.where(coin, inputs.flip(-1), inputs)


def trainer(method, data, augment=None, optim=OPTIM, **changes):
    inputs, targets, *lengths = data
    rows = Dataset(inputs, targets, augment, *lengths)
    config = replace(CONFIG, **changes)
    return Trainer(method=method, config=config, optim=optim, train=rows, validation=rows[:9], seed=3)


TOKENS = {"embedding": TokenConfig(vocabulary=20, max_tokens=12, embedding_width=6)}
WORDS = {"embedding": WordsConfig(vocabulary=20, features=5, layers=2, max_tokens=12, embedding_width=6)}
NUMBERS = {
    "embedding": GraphConfig(node_types=4, edge_types=3, identifier_width=3),
    "outputs": 1,
    "likelihood": "laplace",
}
CASES = {
    "mle with dropout on images": lambda: trainer(Mle(), images(), mirrored, dropout=0.3),
    "mle with a bound on the gradient": lambda: trainer(Mle(), images(), optim=replace(OPTIM, clip=0.1)),
    "mle with weight decay": lambda: trainer(Mle(), images(), optim=replace(OPTIM, weight_decay=10.0)),
    "sdp-mle on texts": lambda: trainer(Mle(attention=DotProductConfig()), texts(), dropout=0.1, **TOKENS),
    "sgpa on images": lambda: trainer(SGPA, images()),
    "sgpa with two samples": lambda: trainer(replace(SGPA, samples=2), images(), dropout=0.0),
    "sgpa with two samples and dropout on texts": lambda: trainer(
        replace(SGPA, samples=2), texts(), **TOKENS
    ),
    "sgpa on words": lambda: trainer(SGPA, words(), **WORDS),
    "standard sgpa": lambda: trainer(Sgpa(attention=SgpaConfig(form="standard")), images()),
    "joint sgpa on texts": lambda: trainer(
        Sgpa(attention=SgpaConfig(num_global=3, joint=True)), texts(), **TOKENS
    ),
    "sgpa regression on graphs": lambda: trainer(SGPA, graphs(), **NUMBERS),
    "mfvi on images": lambda: trainer(MFVI, images()),
    "mfvi regression on graphs": lambda: trainer(MFVI, graphs(), **NUMBERS),
    "sngp on images": lambda: trainer(Sngp(), images()),
    "a parameter that is not used": lambda: trainer(Idle(), images()),
}
STOPPED, BROKEN = "sgpa on images", "cut short"  # the same training, in one go and with a break
COMMAND = "command line"
FIRST_STEP = (7, 1)  # rows of a batch: an uneven split, and nothing left for the second process


def first_step(name, rows, directory):
    """A training of one step; its checkpoint holds the gradient, 10 times Adam's first moment."""
    whole = CASES[name]()
    optim = replace(whole.optim, epochs=1, batch_size=rows)
    return replace(whole, train=whole.train[:rows], optim=optim, directory=directory)


@dataclass(frozen=True, kw_only=True)
class Idle(Mle):
    """A model with a parameter that never gets a gradient."""

    def build(self, config):
        model = super().build(config)
        model.idle = torch.nn.Parameter(torch.zeros(2))
        return model


@dataclass(frozen=True, kw_only=True)
class Failing(Mle):
    """A method that fails in the second process."""

    def loss(self, model, batch, progress):
        if os.environ.get("RANK", "1") == "1" and progress.fraction > 0.3:
            raise NumericalError("this share cannot be factorised")
        return super().loss(model, batch, progress)


TINY = [
    *(
        "optim.epochs=2",
        "stage1.epochs=2",
        "stage2.epochs=2",
        "task.train=65",
        "model.depth=1",
        "model.width=8",
    ),
    *("model.heads=2", "evaluation.rows=20", "evaluation.ood_rows=20"),
]


def grid(folder: Path):
    """Three methods, one of which cannot be trained."""
    place = RunFolder.of("digits", folder, TINY)
    rows = plans(place.recipe, ("mle", "sgpa"))
    broken = plan_of(Failing(), replace(place.recipe.optim, epochs=3), "broken")
    return benchmark(place, [broken, *rows], seeds=1)


def command_line(*words: str) -> None:
    """Run `python -m sgpa words` in this process."""
    with patch.object(sys, "argv", ["sgpa", *words]), patch.object(sys, "stdout", sys.stdout):
        try:
            runpy.run_module("sgpa", run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise


def break_down(*_):
    """A process that dies in the middle of a step."""
    raise RuntimeError("this process is gone")


def run(what: str, folder: Path) -> None:
    if what == "all":
        settings = [word for setting in TINY for word in ("--set", setting)]
        command_line("train", "digits", "--method", "mle", *settings, "--out", str(folder / COMMAND))
        try:
            trainer(Failing(), images()).fit()
        except NumericalError as error:  # raised in every process, so that all can continue
            (folder / f"error-{os.environ['RANK']}.txt").write_text(str(error))
        outcome = grid(folder / "grid")
        failures = {failure.job: failure.reason for failure in outcome.failures}
        (folder / f"grid-{os.environ['RANK']}.json").write_text(json.dumps([outcome.results, failures]))
        for name, make in CASES.items():
            for rows in FIRST_STEP:
                first_step(name, rows, folder / f"{name}, {rows} rows").fit()
            model = replace(make(), directory=folder / name).fit()
            if os.environ["RANK"] == "1":
                model(make().train.inputs[:2]).f.sum().backward()  # no other process has to take part
                torch.save(model.state_dict(), folder / name / "other.pt")
        replace(CASES[STOPPED](), directory=folder / BROKEN).fit()  # resumes what "break down" began
    elif what == "break down":
        original, seen = distributed.cut, []

        def cut(*arguments):
            seen.append(1)
            return break_down() if os.environ["RANK"] == "1" and len(seen) > 13 else original(*arguments)

        distributed.cut = cut  # the third epoch of five steps
        replace(CASES[STOPPED](), directory=folder).fit()


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]))
