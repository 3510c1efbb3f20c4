"""A training step recorded once as a CUDA graph and replayed: nothing is launched from Python any more.

At the paper's sizes a step is hundreds of small operations whose launch takes longer than their work. The
recorded step gives the numbers of the plain one: learning rate and progress are read from tensors, and
random numbers continue from the run's own generator.

`CapturedStep` decides when to record and when to replay. A `StepBody` is the work that is recorded
(`EagerBody` or `CompiledBody`), a `Recorder` is how it is recorded (`CudaGraphs`).
"""

import logging
from collections import Counter

import torch
from torch import Tensor

from sgpa.core.errors import NumericalError, first_line
from sgpa.core.inputs import Batch, made_of, tensors_of
from sgpa.core.noise import Draw, Generated, Recording, source
from sgpa.core.precision import unchecked
from sgpa.gp.objective import Progress
from sgpa.methods import Method
from sgpa.training.optim import OptimConfig
from sgpa.training.steps.base import RunState, StepInfo, StepResult, without_trace
from sgpa.training.steps.body import StepBody
from sgpa.training.steps.plain import LocalPass, eager_step
from sgpa.training.steps.recording import CudaGraphs, Recorded, Recorder, Registers

TOLERATED = 5  # steps of an epoch whose loss may fail to be finite

log = logging.getLogger(__name__)


class CapturedStep:
    """A step that is recorded once for every shape of batches that comes often.

    Batches of other shapes take an unrecorded step with the same numbers. A recorded step whose loss or
    gradient is not finite changes nothing; `registers.skipped` counts such steps.
    """

    def __init__(
        self,
        state: RunState,
        method: Method,
        optim: OptimConfig,
        body: StepBody,
        recorder: Recorder | None = None,
    ) -> None:
        self.state, self.method, self.optim, self.body = state, method, optim, body
        self.recorder = recorder or CudaGraphs()
        self.device = state.model.device
        self.registers = Registers.on(self.device)
        self.generator = state.generator(self.device)
        self.draws: dict[tuple[int, ...], list[Draw]] = {}  # the random numbers of a pass, by shape of batch
        self.seen: Counter[tuple[int, ...]] = Counter()
        self.recordings: dict[tuple[int, ...], Recorded] = {}
        self.attached = self.failed = False

    def __enter__(self) -> "CapturedStep":
        if not self.attached:
            self.body.attach()
            self.attached = True
        self.generator.set_state(self.state.random[self.device.type])
        return self

    def __exit__(self, *_: object) -> None:
        self.state.random = {**self.state.random, self.device.type: self.generator.get_state()}
        skipped = int(self.registers.skipped)
        self.registers.skipped.zero_()
        if skipped > TOLERATED:
            raise NumericalError(
                f"{skipped} steps of an epoch had a loss or gradient that is not finite{self._cause()}; "
                "lower the learning rate or set clip"
            )
        if skipped:
            log.warning("%d steps were skipped: their loss or gradient was not finite", skipped)

    def _cause(self) -> str:
        """What a pass with all checks over the last batch complains of: recorded steps name no layer."""
        try:
            with without_trace(self.state.model), torch.no_grad():
                loss = self.method.loss(self.state.model, self.last, self.last_info.progress)
        except NumericalError as error:
            return f" ({error})"
        names = ("nll", "kl_g", "kl_a")
        bad = [name for name, part in zip(names, loss.parts, strict=False) if not part.isfinite()]
        return f" ({bad[0]})" if bad else ""

    def close(self) -> None:
        """Give the model tensors of its own again."""
        self.body.detach()

    def step(self, batch: Batch, info: StepInfo) -> StepResult:
        """One step on the batch, recorded where it can be."""
        self.last = batch = Batch(self.body.fit(batch.inputs), batch.targets)
        self.last_info = info
        shape = shape_of(batch)
        self.seen[shape] += 1
        if shape not in self.recordings and self._due(shape, len(batch), info.progress.dataset_size):
            self._record(shape, batch, info)
        if (recorded := self.recordings.get(shape)) is None:
            return self._unrecorded(batch, info)
        recorded.load(batch)
        self.registers.lr.fill_(info.lr)
        self.registers.fraction.fill_(info.progress.fraction)
        recorded.replay()
        outcome = self.registers.outcome.clone()
        return StepResult(outcome[:3], outcome[3], outcome[4])

    def _due(self, shape: tuple[int, ...], rows: int, dataset_size: int) -> bool:
        """Whether it is time to record steps of this shape."""
        enough = self.seen[shape] > self.body.warm_up and len(self.recordings) < self.body.most
        return enough and not self.failed and self.body.wants(rows, dataset_size)

    def _unrecorded(self, batch: Batch, info: StepInfo) -> StepResult:
        """The numbers of the recorded step; if they are not finite, again with checks and more jitter."""
        forward, before = LocalPass(self.state, self.method), self.generator.get_state()
        given = (self.state, forward, self.optim, batch, info, self.body.update)
        with source(Generated(self.generator)):
            try:
                with unchecked():
                    return eager_step(*given)
            except NumericalError:
                self.generator.set_state(before)
                return eager_step(*given)

    def _record(self, shape: tuple[int, ...], batch: Batch, info: StepInfo) -> None:
        dataset_size, before = info.progress.dataset_size, self.generator.get_state()
        draws = self._draws(shape, batch, info.progress)
        inputs = made_of(batch.inputs, [tensor.clone() for tensor in tensors_of(batch.inputs)])
        fixed = Batch(inputs, batch.targets.clone())

        def work() -> None:
            self.body.run(fixed, self._numbers(draws), dataset_size, self.registers)

        try:
            with self.body.precision():
                progress = Progress(self.registers.fraction, dataset_size)
                self.recorder.check(lambda: self._rehearse(batch, progress))
                self.body.prepare(fixed, self._numbers(draws), dataset_size, self.registers)
                self.state.optimiser.zero_grad(set_to_none=True)
                self.recordings[shape] = Recorded(fixed, self.recorder.record(work, self.generator))
        except (RuntimeError, TypeError) as error:
            self.failed = True
            log.warning(
                "the training step cannot be recorded and takes the slower, plain way: %s", first_line(error)
            )
        self.state.optimiser.zero_grad(set_to_none=True)
        vars(self.state.optimiser).pop("found_inf", None)
        self.generator.set_state(before)

    def _numbers(self, draws: list[Draw]) -> list[Tensor]:
        """Fresh random numbers for one pass."""
        return [draw.fresh(self.generator) for draw in draws]

    def _draws(self, shape: tuple[int, ...], batch: Batch, progress: Progress) -> list[Draw]:
        """The random numbers that a pass over a batch of this shape asks for."""
        if shape not in self.draws:
            self.draws[shape] = self._rehearse(batch, progress)
        return self.draws[shape]

    def _rehearse(self, batch: Batch, progress: Progress) -> list[Draw]:
        """A pass that changes nothing; returns the random numbers it asks for, in order."""
        model, recording = self.state.model, Recording()
        with without_trace(model), torch.no_grad(), source(recording), unchecked():
            self.method.loss(model, batch, progress)
        return recording.draws


def shape_of(batch: Batch) -> tuple[int, ...]:
    """The shapes of all tensors of the inputs, one after another."""
    return tuple(size for tensor in tensors_of(batch.inputs) for size in (*tensor.shape, -1))


def can_capture(state: RunState) -> bool:
    """Whether steps can be recorded: the model is on a GPU."""
    return state.model.device.type == "cuda"
