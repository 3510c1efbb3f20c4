"""What all training steps share: the run they change, when a step is made, and what it returns."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor, nn

from sgpa.core.inputs import Batch
from sgpa.core.types import Loss
from sgpa.gp.objective import Progress
from sgpa.methods import Method
from sgpa.models import ModelConfig, PatchConfig, Transformer


@dataclass
class RunState:
    """What a step changes: the model, its optimiser and the state of its random numbers."""

    name: str  # for error messages
    model: Transformer
    optimiser: torch.optim.Adam
    random: dict[str, Tensor]  # state of the generator of each kind of device

    def generator(self, device: torch.device) -> torch.Generator:
        """A new generator that continues from this run's random state."""
        generator = torch.Generator(device)
        generator.set_state(self.random[device.type])
        return generator


@dataclass(frozen=True)
class StepInfo:
    """When a step is made."""

    step: int  # from 0
    lr: float
    progress: Progress


@dataclass(frozen=True)
class StepResult:
    """The loss of one step in parts, and the weights of its KL parts."""

    parts: Tensor  # nll, kl_g, kl_a            [3]
    weight_g: float | Tensor
    weight_a: float | Tensor

    @staticmethod
    def of(loss: Loss) -> "StepResult":
        """The parts of a loss, detached."""
        parts = torch.stack([loss.nll, loss.kl_g, loss.kl_a]).detach()
        return StepResult(parts, loss.weight_g, loss.weight_a)


class TrainingStep(Protocol):
    """Makes the steps of one run. Each epoch is one `with` block; `close` is called after the last."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def step(self, batch: Batch, info: StepInfo) -> StepResult:
        """Loss, gradient and update on one batch."""
        ...

    def close(self) -> None:
        """Release what was kept between epochs; the model then owns its tensors."""
        ...


class LossModule(nn.Module):
    """A method's loss on a model as a module, so that its parameters can be replaced or it can be wrapped."""

    def __init__(self, method: Method, model: Transformer) -> None:
        super().__init__()
        self.method, self.model = method, model

    def forward(self, batch: Batch, progress: Progress) -> Loss:
        """The method's loss."""
        return self.method.loss(self.model, batch, progress)


@contextmanager
def without_trace(model: Transformer) -> Iterator[None]:
    """After the block the model's buffers and torch's generators are as they were before it."""
    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
        yield
    for name, buffer in model.named_buffers():
        buffer.copy_(kept[name])


def one_length(config: ModelConfig) -> bool:
    """Whether all sequences that a model reads have one length, as images do."""
    return isinstance(config.embedding, PatchConfig)


def random_state() -> dict[str, Tensor]:
    """The state of torch's generators."""
    state = {"cpu": torch.get_rng_state()}
    return state | ({"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {})


def set_random_state(state: dict[str, Tensor]) -> None:
    """Set torch's generators to a state."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def not_finite(state: RunState, loss: Loss, info: StepInfo) -> str:
    """Which part of a loss, or which gradient, is not finite, and what to do about it."""
    parts = {"nll": loss.nll, "kl_g": loss.kl_g, "kl_a": loss.kl_a}
    bad = [name for name, value in parts.items() if not value.isfinite()]
    bad += [
        f"the gradient of {n}"
        for n, p in state.model.named_parameters()
        if p.grad is not None and not p.grad.isfinite().all()
    ]
    return (
        f"{bad[0] if bad else 'the gradient norm'} is not finite; "
        f"lower the learning rate (lr={info.lr:g}) or set clip"
    )
