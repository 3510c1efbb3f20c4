"""A training step recorded once as a CUDA graph and replayed: nothing is launched from Python any more.

At the paper's sizes a step is hundreds of small operations whose launch takes longer than their work. The
recorded step gives the numbers of the plain one: learning rate and progress are read from tensors, and
random numbers continue from the run's own generator.

`CapturedStep` decides when to record and when to replay. A `StepBody` is the work that is recorded
(`EagerBody` here, `CompiledBody` in compiled.py), a `Recorder` is how (`CudaGraphs`).
"""

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from sgpa.core.errors import NumericalError, first_line
from sgpa.core.inputs import Batch, Inputs, made_of, tensors_of
from sgpa.core.noise import Draw, Generated, Playback, Recording, source
from sgpa.core.precision import unchecked
from sgpa.gp.objective import Progress
from sgpa.methods import Method
from sgpa.training.optim import OptimConfig
from sgpa.training.steps.base import RunState, StepInfo, StepResult, one_length, without_trace
from sgpa.training.steps.plain import LocalPass, eager_step

COLUMNS = 16  # the length of sequences is a multiple of it
TOLERATED = 5  # steps of an epoch whose loss may fail to be finite

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Registers:
    """Tensors at fixed addresses through which a recorded step reads and writes."""

    lr: Tensor  # []
    fraction: Tensor  # of the training that is done   []
    skipped: Tensor  # steps that changed nothing       []
    outcome: Tensor  # nll, kl_g, kl_a and the weights of the two KL parts   [5]

    @staticmethod
    def on(device: torch.device) -> "Registers":
        """All zero."""
        lr, fraction, skipped = (torch.zeros((), device=device) for _ in range(3))
        return Registers(lr, fraction, skipped, torch.zeros(5, device=device))


class StepBody(Protocol):
    """The work of a recorded step, and for which batches it is recorded."""

    warm_up: int  # plain steps of a shape before it is recorded: libraries choose their algorithms there
    most: int  # recordings

    def attach(self) -> None:
        """Prepare model and optimiser, once, before the first step."""
        ...

    def detach(self) -> None:
        """Give the model and the optimiser tensors of their own again."""
        ...

    def fit(self, inputs: Inputs) -> Inputs:
        """Inputs of one of few shapes."""
        ...

    def wants(self, rows: int, dataset_size: int) -> bool:
        """Whether batches of so many rows are worth recording."""
        ...

    def precision(self) -> AbstractContextManager[None]:
        """The block in which the step is recorded."""
        ...

    def prepare(self, batch: Batch, numbers: list[Tensor], dataset_size: int, registers: Registers) -> None:
        """What has to be done before the recording."""
        ...

    def run(self, batch: Batch, numbers: list[Tensor], dataset_size: int, registers: Registers) -> None:
        """Pass, gradient and update, without any control flow that depends on values."""
        ...

    def update(self) -> None:
        """One step of the optimiser, for batches that are not recorded."""
        ...


class Recorder(Protocol):
    """How work is recorded."""

    def check(self, rehearsal: Callable[[], object]) -> None:
        """Raise `RuntimeError` or `TypeError` if the work waits for a value."""
        ...

    def record(self, work: Callable[[], None], generator: torch.Generator) -> Callable[[], None]:
        """A function that repeats the work; `RuntimeError` where it cannot be recorded."""
        ...


class CudaGraphs:
    """Records work as CUDA graphs. They never run at the same time, so they share their memory."""

    def __init__(self) -> None:
        self.pool: Any = None

    def check(self, rehearsal: Callable[[], object]) -> None:
        """Run the rehearsal with every synchronisation of the processor with the GPU an error."""
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            rehearsal()
        finally:
            torch.cuda.set_sync_debug_mode(mode)

    def record(self, work: Callable[[], None], generator: torch.Generator) -> Callable[[], None]:
        """The replay of a graph that draws from the generator."""
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(generator)
        with torch.cuda.graph(graph, pool=self.pool):
            work()
        self.pool = self.pool or graph.pool()
        return graph.replay


@dataclass(frozen=True)
class Recorded:
    """The recorded step for batches of one shape."""

    batch: Batch  # at fixed addresses
    replay: Callable[[], None]

    def load(self, batch: Batch) -> None:
        """Put a batch where the recording reads it."""
        for into, tensor in zip(tensors_of(self.batch.inputs), tensors_of(batch.inputs), strict=True):
            into.copy_(tensor)
        self.batch.targets.copy_(batch.targets)


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
                f"{skipped} steps of an epoch had a loss or gradient that is not finite; lower the learning "
                "rate or set clip; the last checkpoint is kept"
            )
        if skipped:
            log.warning("%d steps were skipped: their loss or gradient was not finite", skipped)

    def close(self) -> None:
        """Give the model tensors of its own again."""
        self.body.detach()

    def step(self, batch: Batch, info: StepInfo) -> StepResult:
        """One step on the batch, recorded where it can be."""
        batch = Batch(self.body.fit(batch.inputs), batch.targets)
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


class EagerBody:
    """The operations of a plain step, as they are.

    Sequences of several lengths are padded to a multiple of `COLUMNS`, so that few shapes occur.
    """

    warm_up = 3
    most = 32

    def __init__(
        self,
        state: RunState,
        method: Method,
        optim: OptimConfig,
        update: Callable[[], object] | None = None,  # by default torch's Adam
    ) -> None:
        self.state, self.method, self.optim = state, method, optim
        self._update = update or state.optimiser.step

    def attach(self) -> None:
        """Let Adam read its learning rate from a tensor."""
        for group in self.state.optimiser.param_groups:
            group["capturable"] = True

    def detach(self) -> None:
        """The model's tensors are its own already."""

    def fit(self, inputs: Inputs) -> Inputs:
        """Inputs padded to a multiple of `COLUMNS`."""
        model = self.state.model
        return inputs if one_length(model.config) else model.trimmed(inputs, COLUMNS)

    def wants(self, rows: int, dataset_size: int) -> bool:
        """Batches of any size are recorded."""
        del rows, dataset_size
        return True

    def precision(self) -> AbstractContextManager[None]:
        """That of the plain step."""
        return nullcontext()

    def prepare(self, batch: Batch, numbers: list[Tensor], dataset_size: int, registers: Registers) -> None:
        """Nothing."""

    def run(self, batch: Batch, numbers: list[Tensor], dataset_size: int, registers: Registers) -> None:
        """Pass, gradient and update; the update must change nothing where `optimiser.found_inf` is 1."""
        model, optimiser = self.state.model, self.state.optimiser
        optimiser.zero_grad(set_to_none=True)
        with source(Playback(numbers)), unchecked():
            loss = self.method.loss(model, batch, Progress(registers.fraction, dataset_size))
        total = loss.total
        total.backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        norm = torch.stack([g.square().sum() for g in gradients]).sum().sqrt()  # []
        bad = (~torch.isfinite(total.detach() + norm)).float()
        if self.optim.clip is not None:
            scale = (self.optim.clip / (norm + 1e-6)).clamp_max(1.0)  # []
            for g in gradients:
                g.mul_(scale)
        for group in optimiser.param_groups:
            group["lr"] = registers.lr
        optimiser.found_inf = bad  # type: ignore[attr-defined]
        self.update()
        registers.skipped.add_(bad)
        registers.outcome[:3].copy_(torch.stack([loss.nll, loss.kl_g, loss.kl_a]).detach())
        for into, weight in zip(registers.outcome[3:], (loss.weight_g, loss.weight_a), strict=True):
            into.copy_(weight) if isinstance(weight, Tensor) else into.fill_(weight)

    def update(self) -> None:
        """Torch's Adam, or what was given instead."""
        self._update()


def shape_of(batch: Batch) -> tuple[int, ...]:
    """The shapes of all tensors of the inputs, one after another."""
    return tuple(size for tensor in tensors_of(batch.inputs) for size in (*tensor.shape, -1))


def can_capture(state: RunState) -> bool:
    """Whether steps can be recorded: the model is on a GPU."""
    return state.model.device.type == "cuda"
