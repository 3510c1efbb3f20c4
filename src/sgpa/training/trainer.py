"""One training loop for every method: steps, schedule, selection, checkpoints, resume."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sgpa.core import devices
from sgpa.core.counters import STEPS_NEED_FLOAT64, counting
from sgpa.core.devices import check_device
from sgpa.core.errors import NumericalError
from sgpa.core.noise import check_seed
from sgpa.core.types import Regression
from sgpa.data import Dataset
from sgpa.gp.objective import Progress
from sgpa.methods import Method
from sgpa.models import ModelConfig, Transformer, saving
from sgpa.models.linear_start import linear_start
from sgpa.training import left_out, process_group
from sgpa.training.diagnostics import diagnose
from sgpa.training.fingerprint import Fingerprint
from sgpa.training.left_out import LeftOut
from sgpa.training.optim import OptimConfig, adam
from sgpa.training.run_state import RunFiles
from sgpa.training.selection import Choice, left_out_key, score, suffix, to_minimise
from sgpa.training.steps.base import RunState, StepInfo, TrainingStep, random_state, set_random_state
from sgpa.training.steps.choose import choose_step
from sgpa.training.steps.plain import PlainStep

CHECKPOINT_SECONDS = 5.0  # at most so much work is lost when a run dies
PROGRESS_SECONDS = 0.5  # between two step lines
INITIAL_BATCH = 512  # rows a method may use to set initial values
DIAGNOSED = 64  # rows the diagnostics use
COARSE = "float32_too_coarse"  # in the note of a run

OnProgress = Callable[[dict[str, Any]], None]


def silent(_: dict[str, Any]) -> None:
    """Report nothing."""


@dataclass
class Trainer:
    """Trains one model with one method; everything random is determined by `seed`.

    With a `directory` the run writes `log.jsonl`, `checkpoint.safetensors`, `best.safetensors` and, once
    finished, `model/` and `finished.json`; the last two are all that is needed later. A run that was stopped
    resumes when it is started again with the same settings, with the result it would have had. A directory
    with a finished model of other settings or data is refused.

    `init_from` are weights of a trained point model to start from. Each method in `extra_selectors` selects
    an epoch of this training by its own predictions, and gets a model of its own, `model-mcd/` for MC
    dropout: what is best with dropout off is not what is best with dropout on.

    `on_progress` receives the line of the log after every epoch and, about twice a second, the line of a
    step, which has a key "step".

    Under torchrun all processes train this one model, each on a share of every batch; the result is that of
    one process up to rounding. Only the first process writes and reports.
    """

    method: Method
    config: ModelConfig
    optim: OptimConfig
    train: Dataset
    validation: Dataset
    seed: int = 0
    directory: Path | None = None
    init_from: Mapping[str, Tensor] | None = None
    extra_selectors: tuple[Method, ...] = ()
    device: str = "cpu"
    on_progress: OnProgress = silent
    left_out: LeftOut | None = field(default=None, init=False)  # after `fit`, for values

    def fit(self) -> Transformer:
        """Train to the end, or read the finished model; returns it in evaluation mode.

        >>> model = Trainer(  # doctest: +SKIP
        ...     method=Sgpa(), config=config, optim=OptimConfig(epochs=20), train=train, validation=held_out
        ... ).fit()
        """
        check_device(self.device)
        check_seed(self.seed)
        process_group.begin(self.device)
        if (model := self.finished()) is not None:
            return model
        with torch.random.fork_rng(devices=[self.device] if self.device.startswith("cuda") else []):
            return self._train()

    def _train(self) -> Transformer:
        run = _Run(self)
        total = self.optim.epochs * run.steps
        step = choose_step(run.state, self.method, self.optim, total, recorded=not run.coarse)
        for epoch in range(run.files.note["epoch"] + 1, self.optim.epochs + 1):
            if run.stopped_improving:
                break
            if run.coarse and not isinstance(step, PlainStep):
                step.close()
                step = choose_step(run.state, self.method, self.optim, total, recorded=False)
            with run.explaining_errors(epoch):
                _epoch(run, step, epoch)
        step.close()
        run.files.finish(run.state.model, run.choices)
        process_group.wait()  # what follows may read the model
        self._keep(run.files.note)
        return run.state.model.eval()

    def finished(self) -> Transformer | None:
        """The saved model, if this training is finished."""
        suffixes = ["", *map(suffix, self.extra_selectors)]
        files = RunFiles(self.directory, self.fingerprint)
        if (model := files.finished(self.method, self.config, suffixes)) is None:
            return None
        self._keep(files.note)
        return model.to(self.device)

    def _keep(self, note: Mapping[str, Any]) -> None:
        """Keep the errors of held-out rows that a run noted; only where the model itself predicts."""
        if (key := left_out_key("")) in note and self.method.predicts_directly:
            self.left_out = LeftOut.from_json(note[key])

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """Identifies the settings and the data."""
        return Fingerprint(
            self.method, self.config, self.optim, self.seed, self.train, self.validation, self.init_from,
            self.extra_selectors,
        )  # fmt: skip


class _Run:
    """A training under way."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = t = trainer
        torch.manual_seed(t.seed)
        self.train, self.validation = t.train.to(t.device), t.validation.to(t.device)
        model = t.method.build(t.config).to(t.device)
        for data in (self.train, self.validation):
            model.likelihood.check(data.targets, model.config.outputs)
        optimiser = adam(t.optim, model, dict(model.named_parameters()))
        self.state = RunState(f"seed {t.seed}", model, optimiser, random_state())
        self.files = RunFiles(t.directory, t.fingerprint)
        resumed = self.files.resume(self.state)
        if not resumed:
            if t.init_from is not None:
                saving.warm_start(model, t.init_from)
            else:  # only where the config asks for it
                linear_start(model, self.train, self.validation)
            model.likelihood.initialise(self.train.targets)
            t.method.initialise(model, next(self.train.batches(INITIAL_BATCH, t.seed)))
            self.state.random = random_state()
        self.choices = [Choice(t.method, ""), *(Choice(m, suffix(m)) for m in t.extra_selectors)]
        self.files.start(self.choices)
        if not resumed and (t.init_from is not None or getattr(t.config.embedding, "linear_start", False)):
            # epoch 0 is useful already: it is kept where no later one is better
            for choice in self.choices:
                self.select(choice, {"epoch": 0})
        self.saved = time.monotonic()
        self.at = 0  # the step that is made

    @contextmanager
    def explaining_errors(self, epoch: int) -> Iterator[None]:
        """A number that is not finite stops the run: the error names step and last checkpoint."""
        try:
            yield
        except NumericalError as error:
            where = f"{self.state.name}, step {self.at + 1}"
            kept = f"epoch {epoch}; {self.files.last_checkpoint}"
            raise NumericalError(f"{where}: {error} ({kept})") from error

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return -(-len(self.train) // self.trainer.optim.batch_size)

    @property
    def coarse(self) -> bool:
        """Whether some layer needs float64, which recorded steps cannot find out: steps are plain then."""
        return bool(self.files.note.get(COARSE))

    @property
    def stopped_improving(self) -> bool:
        """Whether `patience` validations brought no new best epoch to any selecting method."""
        optim, note = self.trainer.optim, self.files.note
        if optim.patience is None:
            return False
        last = max(note.get(choice.epoch, 0) for choice in self.choices)
        return bool(note["epoch"] - last >= optim.patience * optim.select_every)

    def report(self, line: dict[str, Any]) -> None:
        """Pass a line on, in the first process."""
        if process_group.leader():
            self.trainer.on_progress(line)

    def end_epoch(self, line: dict[str, Any]) -> None:
        """Validate and select where it is due, write log and checkpoint, report."""
        optim, model = self.trainer.optim, self.state.model
        validates = line["epoch"] % optim.select_every == 0 or line["epoch"] == optim.epochs
        set_random_state(self.state.random)  # whichever generator the steps used
        self.files.note["epoch"] = line["epoch"]
        if validates:
            for choice in self.choices:
                self.select(choice, line)
            with counting() as counted:
                line["layers"] = [asdict(d) for d in diagnose(model, self.validation.inputs[:DIAGNOSED])]
            if counted.get(STEPS_NEED_FLOAT64):
                self.files.note[COARSE] = True
            if self.stopped_improving:
                line["stopped_early"] = True
        self.files.log(line)
        if validates or time.monotonic() - self.saved > CHECKPOINT_SECONDS:
            self.files.checkpoint(self.state)
            self.saved = time.monotonic()
        self.report(line)

    def select(self, choice: Choice, line: dict[str, Any]) -> None:
        """Validate, and keep the weights if they are the best so far."""
        model = self.state.model
        prediction = choice.method.predictor(model).predict(self.validation.inputs)
        scores = process_group.agreed(score(prediction, self.validation.targets))
        line[f"validation{choice.suffix}"] = scores
        value = to_minimise(scores, line["epoch"], self.trainer.optim.select)
        best = self.files.note.get(choice.score)
        if best is None or value < best:
            weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
            self.files.keep_best(choice, value, weights)
        if isinstance(prediction, Regression):
            self.keep_left_out(choice, prediction)

    def keep_left_out(self, choice: Choice, prediction: Regression) -> None:
        """Note the errors of held-out rows, from which intervals are made."""
        note, select = self.files.note, self.trainer.optim.select
        before = LeftOut.from_json(note[choice.left_out]) if choice.left_out in note else None
        if (rows := left_out.update(before, prediction, self.validation.targets, select)) is not None:
            note[choice.left_out] = process_group.agreed(rows.to_json())


def _epoch(run: _Run, step: TrainingStep, epoch: int) -> None:
    """One pass over the training data."""
    t, optim, steps = run.trainer, run.trainer.optim, run.steps
    run.state.model.train()
    devices.forget_peak(t.device)
    started = reported = time.monotonic()
    rows, sums = 0, torch.zeros(3, device=t.device)  # nll, kl_g, kl_a
    with step, counting() as counted:
        for i, batch in enumerate(run.train.batches(optim.batch_size, t.seed * 1_000_003 + epoch)):
            run.at = at = (epoch - 1) * steps + i
            lr = optim.lr_at(at, steps)
            progress = Progress(at / max(1, steps * optim.epochs - 1), len(run.train))
            result = step.step(batch, StepInfo(at, lr, progress))
            sums += len(batch) * result.parts
            rows += len(batch)
            now = time.monotonic()
            if process_group.leader() and (now - reported > PROGRESS_SECONDS or (epoch == 1 and i == 0)):
                reported = now
                speed = {"step_seconds": (now - started) / (i + 1)}
                run.report({"epoch": epoch, "step": i + 1, "steps": steps} | _means(sums, rows) | speed)
    means, seconds = _means(sums, rows), time.monotonic() - started
    weight_g, weight_a = float(result.weight_g), float(result.weight_a)
    run.end_epoch(
        {
            "epoch": epoch,
            "lr": lr,
            **means,
            "weight_g": weight_g,
            "weight_a": weight_a,
            "loss": means["nll"] + weight_g * means["kl_g"] + weight_a * means["kl_a"],
            "seconds": seconds,
            "peak_memory_bytes": devices.peak(t.device),
            **({"numerics": counted} if counted else {}),
        }
    )


def _means(sums: Tensor, rows: int) -> dict[str, float]:
    """Means over rows of the parts of the loss."""
    return dict(zip(("nll", "kl_g", "kl_a"), (sums / rows).tolist(), strict=True))
