"""One training loop for every method: steps, schedule, selection, checkpoints, resume."""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sgpa.attention.kernel import KernelProjections
from sgpa.core import devices, provenance
from sgpa.core.devices import check_device
from sgpa.core.errors import CheckpointError, ConfigError
from sgpa.core.files import digest, load_exactly, read_json, read_tensors, write_json, write_tensors
from sgpa.core.inputs import Batch
from sgpa.data import Dataset
from sgpa.gp.fused import TRITON
from sgpa.gp.objective import Progress
from sgpa.methods import Method
from sgpa.models import ModelConfig, Transformer, saving, to_json
from sgpa.training import logs, process_group
from sgpa.training.checkpoints import load_run, save_run
from sgpa.training.diagnostics import diagnose
from sgpa.training.optim import OptimConfig, adam
from sgpa.training.selection import Choice, suffix, to_minimise, validate
from sgpa.training.steps.captured import Captured, can_capture
from sgpa.training.steps.compiled import Compiled, can_compile
from sgpa.training.steps.distributed import DataParallel
from sgpa.training.steps.plain import (
    Member,
    PlainStep,
    Stacked,
    StepInfo,
    can_stack,
    random_state,
    set_random_state,
)

FINISHED = "finished.json"  # beside the model: of which run it is
CHECKPOINT_SECONDS = 5.0  # at most so much work is lost when a run dies
TELL_SECONDS = 0.5  # how often a step is reported

log = logging.getLogger(__name__)

Report = Callable[[dict[str, Any]], None]  # receives each epoch's line of the log, or a step's


def silent(_: dict[str, Any]) -> None:
    """Tell nobody."""


@dataclass
class Trainer:
    """Trains one model with one method. Everything random follows from `seed`.

    With a `directory` the run leaves `log.jsonl`, `checkpoint.safetensors`, `best.safetensors` and, once
    finished, `model/` and `finished.json`, which are all that is asked for later; started again with the same
    settings it goes on where it stopped, and gives the same result as if it had not. `report` hears of every
    epoch, `tick` of a step about twice a second.

    A method in `also` gets a model of its own out of the same steps, `model-mcd/` for MC dropout: what is
    best with dropout off is not what is best with dropout on.

    Started by torchrun, all processes train this one model, each on a share of every batch; the result is
    that of one process up to rounding. The first process alone writes and reports.
    """

    method: Method
    config: ModelConfig
    optim: OptimConfig
    train: Dataset
    validation: Dataset
    seed: int = 0
    directory: Path | None = None
    warm: dict[str, Tensor] | None = None  # weights of a trained point model to start from
    also: tuple[Method, ...] = ()  # methods that choose an epoch of this training by their own predictions
    device: str = "cpu"
    report: Report = silent
    tick: Report = silent

    def fit(self) -> Transformer:
        """Train to the end and return the selected model in evaluation mode."""
        return train_together([self])[0]

    @property
    def fingerprint(self) -> str:
        """Names the settings and the data of the run."""
        settings = [
            repr(self.method),
            to_json(self.config),
            asdict(self.optim),
            self.seed,
            [len(self.train), len(self.validation)],
            digest(self.train.targets),
            None if self.warm is None else sorted((name, digest(w)) for name, w in self.warm.items()),
            *map(repr, self.also),
        ]
        return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]

    def finished(self) -> Transformer | None:
        """The saved model, if the run has come to its end."""
        model, note = self.path("model"), self.path(FINISHED)
        if model is None or note is None or not note.exists():
            return None
        folders = [model, *(model.with_name(f"model{suffix(other)}") for other in self.also)]
        if not all((folder / "config.json").exists() for folder in folders):
            return None
        if read_json(note)["fingerprint"] != self.fingerprint:
            return None
        built = self.method.build(self.config)
        load_exactly(built, saving.load(model)[1], model)
        return built.to(self.device).eval()

    def path(self, name: str) -> Path | None:
        """A file of the run, if it keeps any."""
        return None if self.directory is None else self.directory / name


def train_together(trainers: Sequence[Trainer]) -> list[Transformer]:
    """Train several runs that share method, model and optimiser; returns their models.

    Runs whose batches have one shape are trained at once on stacked parameters, others epoch by epoch in
    turn. Either way each gives what it would have given alone, and can be resumed alone or together.
    """
    first = trainers[0]
    check_device(first.device)
    process_group.begin(first.device)
    for other in trainers[1:]:
        for name in ("method", "config", "optim", "device"):
            if getattr(other, name) != getattr(first, name):
                raise ConfigError(f"runs that train together must share their {name}")
    finished = [trainer.finished() for trainer in trainers]
    runs = [_Run(trainer) for trainer, model in zip(trainers, finished, strict=True) if model is None]
    steppers: dict[tuple[int, ...], Stepper] = {}  # one for every group of runs that step together
    for epoch in range(1, first.optim.epochs + 1):
        behind = [run for run in runs if run.note["epoch"] < epoch]
        together = process_group.world() == 1 and can_stack([run.member for run in behind])
        for group in [behind] if together else [[run] for run in behind]:
            key = tuple(runs.index(run) for run in group)
            if key not in steppers:
                steps = first.optim.epochs * group[0].steps
                members = [run.member for run in group]
                steppers[key] = stepper(members, first.method, first.optim, steps)
            _epoch(group, steppers[key], epoch)
    for each in steppers.values():
        each.close()
    for run in runs:
        run.finish()
    process_group.wait()  # what follows may read the models
    trained = iter(run.member.model for run in runs)
    return [next(trained) if model is None else model for model in finished]


Stepper = PlainStep | Stacked


def stepper(members: Sequence[Member], method: Method, optim: OptimConfig, steps: int) -> Stepper:
    """How these models make their steps, so many in all."""
    check_triton(members)
    if process_group.world() == 1 and can_capture(members):
        kind = Compiled if can_compile(members, steps) else Captured
        return kind(members, method, optim)
    if len(members) > 1:
        return Stacked(members, method, optim)
    single = DataParallel if process_group.world() > 1 else PlainStep
    return single(members[0], method, optim)


def check_triton(members: Sequence[Member]) -> None:
    """Say so where a GPU could be faster; the numbers are the same."""
    model = members[0].model
    kernels = any(isinstance(layer.attention, KernelProjections) for layer in model.gp_layers)
    if not TRITON and kernels and model.device.type == "cuda":
        tell_of_triton()


@cache
def tell_of_triton() -> None:
    """Once per process."""
    log.warning("Triton is not installed: kernel attention takes slower ways; install the extra `fused`")


class _Run:
    """A training under way: its model and all it writes to disk."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = t = trainer
        torch.manual_seed(t.seed)
        self.train, self.validation = t.train.to(t.device), t.validation.to(t.device)
        model = t.method.build(t.config).to(t.device)
        for data in (self.train, self.validation):
            model.likelihood.check(data.targets, model.config.outputs)
        optimiser = adam(t.optim, model, dict(model.named_parameters()))
        checkpoint = t.path("checkpoint.safetensors")
        if checkpoint is not None and checkpoint.exists():
            self.note, random = load_run(checkpoint, model, optimiser, t.fingerprint)
        else:
            if t.warm is not None:
                saving.warm_start(model, t.warm)
            model.likelihood.initialise(self.train.targets)
            t.method.initialise(model, next(self.train.batches(INITIAL_BATCH, t.seed)))
            self.note = {"fingerprint": t.fingerprint, "epoch": 0}
            random = random_state()
        self.member = Member(f"seed {t.seed}", model, optimiser, random)
        if process_group.from_leader(lambda: self.note) != self.note:
            raise CheckpointError(f"{t.directory} must be a folder that all machines share")
        if log := self.output("log.jsonl"):
            logs.cut(log, self.note["epoch"])
        self.choices = [Choice(t.method, ""), *(Choice(other, suffix(other)) for other in t.also)]
        for choice in self.choices:
            best = t.path(f"{choice.score}.safetensors")
            if best is not None and self.note.get(choice.score) is not None:
                choice.weights = read_tensors(best)[0]
        self.saved = time.monotonic()

    def output(self, name: str) -> Path | None:
        """A file to write, if the run keeps any: the leader alone does."""
        return self.trainer.path(name) if process_group.leader() else None

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return -(-len(self.train) // self.trainer.optim.batch_size)

    def batches(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch."""
        return self.train.batches(self.trainer.optim.batch_size, self.trainer.seed * 1_000_003 + epoch)

    def end_epoch(self, line: dict[str, Any]) -> None:
        """Validate, select, log, save and tell."""
        t, epoch, model = self.trainer, line["epoch"], self.member.model
        looks = epoch % t.optim.select_every == 0 or epoch == t.optim.epochs
        set_random_state(self.member.random)  # whichever way the steps were made
        if looks:
            for choice in self.choices:
                self.choose(choice, line)
            line["layers"] = [asdict(d) for d in diagnose(model, self.validation.inputs[:DIAGNOSED])]
        self.note["epoch"] = epoch
        if log := self.output("log.jsonl"):
            logs.append(log, line)
        checkpoint = self.output("checkpoint.safetensors")
        if checkpoint is not None and (looks or time.monotonic() - self.saved > CHECKPOINT_SECONDS):
            save_run(checkpoint, model, self.member.optimiser, self.member.random, self.note)
            self.saved = time.monotonic()
        if process_group.leader():
            t.report(line)

    def choose(self, choice: Choice, line: dict[str, Any]) -> None:
        """Validate, and keep the weights if they are the best so far."""
        t, epoch, model = self.trainer, line["epoch"], self.member.model
        scores = process_group.agreed(validate(choice.method.predictor(model), self.validation))
        line[f"validation{choice.suffix}"] = scores
        score, before = to_minimise(scores, epoch, t.optim.select), self.note.get(choice.score)
        if before is None or score < before:
            self.note |= {choice.score: score, choice.epoch: epoch}
            choice.weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
            if path := self.output(f"{choice.score}.safetensors"):
                write_tensors(path, choice.weights)

    def finish(self) -> None:
        """Go back to the epoch that each method chose, its own last, and save the models."""
        model = self.member.model
        for choice in reversed(self.choices):
            assert choice.weights is not None
            model.load_state_dict(choice.weights)
            if (path := self.output(f"model{choice.suffix}")) is not None:
                model.save_pretrained(path)
        if (path := self.output(FINISHED)) is not None:
            provenance.record(path.parent)
            write_json(path, self.note)
        model.eval()


def _epoch(runs: Sequence[_Run], stepper: Stepper, epoch: int) -> None:
    """One pass of every run over its training data."""
    first, optim, steps = runs[0], runs[0].trainer.optim, runs[0].steps
    for run in runs:
        run.member.model.train()
    devices.forget_peak(first.trainer.device)
    started = told = time.monotonic()
    rows = 0
    sums = torch.zeros(len(runs), 3, device=first.trainer.device)
    with stepper:
        for i, batches in enumerate(zip(*(run.batches(epoch) for run in runs), strict=True)):
            at = (epoch - 1) * steps + i
            lr = optim.lr_at(at, steps)
            progress = Progress(at / max(1, steps * optim.epochs - 1), len(first.train))
            done = stepper.step(batches, StepInfo(at, lr, progress))
            sums += len(batches[0]) * done.parts
            rows += len(batches[0])
            now = time.monotonic()
            if process_group.leader() and (now - told > TELL_SECONDS or (epoch == 1 and i == 0)):
                told = now
                for run, (nll, kl_g, kl_a) in zip(runs, (sums / rows).tolist(), strict=True):
                    run.trainer.tick(
                        {
                            "epoch": epoch,
                            "step": i + 1,
                            "steps": steps,
                            "nll": nll,
                            "kl_g": kl_g,
                            "kl_a": kl_a,
                            "step_seconds": (now - started) / (i + 1),
                        }
                    )
    weight_g, weight_a = float(done.weight_g), float(done.weight_a)
    share = (time.monotonic() - started) / len(runs)
    for run, (nll, kl_g, kl_a) in zip(runs, (sums / rows).tolist(), strict=True):
        run.end_epoch(
            {
                "epoch": epoch,
                "lr": lr,
                "nll": nll,
                "kl_g": kl_g,
                "kl_a": kl_a,
                "weight_g": weight_g,
                "weight_a": weight_a,
                "loss": nll + weight_g * kl_g + weight_a * kl_a,
                "seconds": share,
                "together": len(runs),
                "peak_memory_bytes": devices.peak(first.trainer.device),
            }
        )


INITIAL_BATCH = 512  # rows a method may look at to set initial values
DIAGNOSED = 64  # rows the diagnostics look at
