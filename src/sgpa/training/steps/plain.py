"""The plain training step: loss, backward, update, one after another from Python."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from sgpa.core.errors import NumericalError
from sgpa.core.inputs import Batch
from sgpa.core.types import Loss
from sgpa.gp.objective import Progress
from sgpa.methods import Method
from sgpa.training.optim import OptimConfig
from sgpa.training.steps.base import (
    RunState,
    StepInfo,
    StepResult,
    not_finite,
    random_state,
    set_random_state,
)


class ForwardPass(Protocol):
    """How the loss of a batch is computed: by this process, or by several that share the rows."""

    def __call__(self, batch: Batch, progress: Progress) -> tuple[Loss, Tensor]:
        """The loss of the batch, and the number whose gradient this process computes, []."""
        ...

    def close(self) -> None:
        """Release what was kept between steps."""
        ...


class LocalPass:
    """The loss of a batch, all rows in this process."""

    def __init__(self, state: RunState, method: Method) -> None:
        self.state, self.method = state, method

    def __call__(self, batch: Batch, progress: Progress) -> tuple[Loss, Tensor]:
        """The loss and its total."""
        loss = self.method.loss(self.state.model, batch, progress)
        return loss, loss.total

    def close(self) -> None:
        """There is nothing to release."""


class PlainStep:
    """Loss, backward and update with torch's own generators."""

    def __init__(self, state: RunState, forward: ForwardPass, optim: OptimConfig) -> None:
        self.state, self.forward, self.optim = state, forward, optim

    def __enter__(self) -> "PlainStep":
        set_random_state(self.state.random)
        return self

    def __exit__(self, *_: object) -> None:
        self.state.random = random_state()

    def step(self, batch: Batch, info: StepInfo) -> StepResult:
        """One step on the batch."""
        return eager_step(self.state, self.forward, self.optim, batch, info)

    def close(self) -> None:
        """Release what the forward pass kept."""
        self.forward.close()


def eager_step(
    state: RunState,
    forward: ForwardPass,
    optim: OptimConfig,
    batch: Batch,
    info: StepInfo,
    update: Callable[[], object] | None = None,  # by default the optimiser's step
) -> StepResult:
    """One step; raises `NumericalError` before anything is changed if loss or gradient is not finite."""
    model, optimiser = state.model, state.optimiser
    for group in optimiser.param_groups:
        group["lr"] = info.lr
    loss, objective = forward(batch, info.progress)
    optimiser.zero_grad(set_to_none=True)
    objective.backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    if not torch.isfinite(loss.total.detach() + norm):
        raise NumericalError(not_finite(state, loss, info))
    if optim.clip is not None:
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), optim.clip, norm)
    (update or optimiser.step)()
    return StepResult.of(loss)
