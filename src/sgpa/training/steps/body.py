"""The work that a recorded step does: operations as they are here, compiled ones in compiled.py."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor

from sgpa.core.inputs import Batch, Inputs
from sgpa.core.noise import Playback, source
from sgpa.core.precision import unchecked
from sgpa.gp.objective import Progress
from sgpa.methods import Method
from sgpa.training.optim import OptimConfig
from sgpa.training.steps.base import RunState, one_length
from sgpa.training.steps.recording import Registers

COLUMNS = 16  # the length of sequences is a multiple of it


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
        """No preparation is needed."""

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
