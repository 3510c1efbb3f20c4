"""How a training step is made: for one model, or for several of one shape at once.

Several models train on stacked parameters: one pass over all of them (`torch.vmap`) with each model's own
batch and own random numbers, so that each learns what it would have learned alone. At sizes where single
operations leave a device idle, five models cost little more than one.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from sgpa.core.errors import NumericalError
from sgpa.core.inputs import Batch, Inputs, made_of, tensors_of
from sgpa.core.noise import Draw, Playback, Recording, source
from sgpa.core.precision import unchecked
from sgpa.core.types import Loss
from sgpa.gp.objective import Progress
from sgpa.methods import Method
from sgpa.models import ModelConfig, PatchConfig, Transformer
from sgpa.training.optim import OptimConfig, adam
from sgpa.training.steps.stacking import shape_of, side_by_side, stack, unstack

Weights = tuple[float | Tensor, float | Tensor]  # of the global and the amortised KL


@dataclass
class Member:
    """A model in training, with the state of its own random numbers."""

    name: str
    model: Transformer
    optimiser: torch.optim.Adam
    random: dict[str, Tensor]  # state of the generator of each kind of device

    def generator(self, device: torch.device) -> torch.Generator:
        """A generator of its own that goes on where this member's left off."""
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
class Step:
    """What one step did: each member's loss in parts."""

    parts: Tensor  # nll, kl_g, kl_a            [E, 3]
    weight_g: float | Tensor
    weight_a: float | Tensor


class PlainStep:
    """The plain way: one model, forward, backward, update."""

    def __init__(self, member: Member, method: Method, optim: OptimConfig) -> None:
        self.member, self.method, self.optim = member, method, optim

    def __enter__(self) -> "PlainStep":
        set_random_state(self.member.random)
        return self

    def __exit__(self, *_: object) -> None:
        self.member.random = random_state()

    def step(self, batches: Sequence[Batch], moment: StepInfo) -> Step:
        """One step on the member's batch."""
        (batch,) = batches
        model, optimiser = self.member.model, self.member.optimiser
        for group in optimiser.param_groups:
            group["lr"] = moment.lr
        loss, objective = self.loss(batch, moment)
        optimiser.zero_grad(set_to_none=True)
        objective.backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if not torch.isfinite(loss.total.detach() + norm):
            raise NumericalError(not_finite(self.member, loss, moment))
        if self.optim.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(model.parameters(), self.optim.clip, norm)
        optimiser.step()
        return Step(loss.parts.detach()[None, :3], loss.weight_g, loss.weight_a)

    def close(self) -> None:
        """Nothing is kept between epochs."""

    def loss(self, batch: Batch, moment: StepInfo) -> tuple[Loss, Tensor]:
        """The loss of the batch, and the number whose gradient is the step's."""
        loss = self.method.loss(self.member.model, batch, moment.progress)
        return loss, loss.total


class Stacked:
    """Several models at once. Inside the block their parameters are slices of stacked ones."""

    def __init__(self, members: Sequence[Member], method: Method, optim: OptimConfig) -> None:
        self.members, self.method, self.optim = list(members), method, optim
        self.draws: dict[tuple[int, ...], list[Draw]] = {}  # what a pass over a batch of some shape asks for

    def __enter__(self) -> "Stacked":
        models = [member.model for member in self.members]
        self.stacked = stack(models)
        leaves = {name: p for name, p in self.stacked.items() if p.requires_grad}
        self.leaves = list(leaves.values())
        self.optimiser = adam(self.optim, models[0], leaves)
        for name, leaf in leaves.items():
            states = [m.optimiser.state[m.model.get_parameter(name)] for m in self.members]
            if states[0]:  # moments live in stacked tensors too, and each member's are slices of them
                joint = {key: torch.stack([s[key] for s in states]) for key in ("exp_avg", "exp_avg_sq")}
                self.optimiser.state[leaf] = {"step": states[0]["step"].clone(), **joint}
        self.device = self.leaves[0].device
        self.generators = [member.generator(self.device) for member in self.members]
        return self

    def __exit__(self, *_: object) -> None:
        unstack([member.model for member in self.members])
        self.publish()

    def close(self) -> None:
        """Nothing is kept between epochs."""

    def publish(self) -> None:
        """Hand every member its moments and the state of its generator."""
        for e, (member, generator) in enumerate(zip(self.members, self.generators, strict=True)):
            member.random = {**member.random, self.device.type: generator.get_state()}
            for name, leaf in self.stacked.items():
                if state := self.optimiser.state.get(leaf):
                    member.optimiser.state[member.model.get_parameter(name)] = {
                        "step": state["step"].clone(),
                        "exp_avg": state["exp_avg"][e].clone(),
                        "exp_avg_sq": state["exp_avg_sq"][e].clone(),
                    }

    def step(self, batches: Sequence[Batch], moment: StepInfo) -> Step:
        """One step of every member on its own batch."""
        inputs, targets = side_by_side(batches)  # [E, B, ...], [E, B]
        numbers = self._numbers(self._draws(batches[0], moment.progress))  # [E, ...] each
        for group in self.optimiser.param_groups:
            group["lr"] = moment.lr
        self.optimiser.zero_grad(set_to_none=True)
        parts, weights = self._passes(inputs, targets, numbers, moment.progress)
        norm = self._norm()  # [E]
        sound = torch.isfinite(parts[:, 3].detach() + norm)
        for e in (~sound).nonzero().flatten().tolist():  # again by itself, where jitter may be raised
            parts.data[e] = self._alone(e, batches[e], moment, [n[e] for n in numbers])
        if self.optim.clip is not None:
            self._clip(norm if sound.all() else self._norm())
        self._update()
        return Step(parts.detach()[:, :3], *weights)

    def _passes(
        self, inputs: Inputs, targets: Tensor, numbers: list[Tensor], progress: Progress
    ) -> tuple[Tensor, Weights]:
        """Forward and backward of all members: their losses [E, 4] and the weights of the KL parts."""
        stacked = {f"model.{name}": value for name, value in self.stacked.items()}
        parts, weights = self._losses(stacked, inputs, targets, numbers, progress)
        parts[:, 3].sum().backward()
        return parts, weights

    def _losses(
        self,
        state: dict[str, Tensor],
        inputs: Inputs,
        targets: Tensor,
        numbers: list[Tensor],
        progress: Progress,
    ) -> tuple[Tensor, Weights]:
        """The losses [E, 4] of all members with these parameters; one member needs no `vmap`."""
        module = LossModule(self.method, self.members[0].model)

        def losses(state: dict[str, Tensor], x: list[Tensor], y: Tensor, drawn: list[Tensor]) -> Tensor:
            with source(Playback(drawn)):
                batch = Batch(made_of(inputs, x), y)
                return torch.func.functional_call(module, state, (batch, progress))

        given = (state, tensors_of(inputs), targets, numbers)
        with unchecked():
            if len(self.members) == 1:
                parts = losses(*tree_map(lambda t: t.squeeze(0), given)).unsqueeze(0)
            else:
                parts = torch.vmap(losses)(*given)
        return parts, module.weights

    def _numbers(self, draws: list[Draw]) -> list[Tensor]:
        """Fresh random numbers for one pass of every member, each from its own generator."""
        numbers = [
            torch.empty((len(self.members), *draw.shape), dtype=draw.dtype, device=draw.device)
            for draw in draws
        ]
        for e, generator in enumerate(self.generators):
            for draw, into in zip(draws, numbers, strict=True):
                draw.into(into[e], generator)
        return numbers

    def _draws(self, batch: Batch, progress: Progress) -> list[Draw]:
        """What a pass over a batch of this shape asks for."""
        shape = shape_of(batch)
        if shape not in self.draws:
            self.draws[shape] = self._rehearse(batch, progress)
        return self.draws[shape]

    def _rehearse(self, batch: Batch, progress: Progress) -> list[Draw]:
        """The draws of a pass over a batch as it is, in order."""
        model, recording = self.members[0].model, Recording()
        with without_trace(model), torch.no_grad(), source(recording), unchecked():
            self.method.loss(model, batch, progress)
        return recording.draws

    def _alone(self, e: int, batch: Batch, moment: StepInfo, drawn: list[Tensor]) -> Tensor:
        """The pass of one member with every check on; puts its gradient in place."""
        model = self.members[e].model
        model.zero_grad(set_to_none=True)
        with source(Playback(drawn)):
            loss = self.method.loss(model, batch, moment.progress)
        loss.total.backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
        if not torch.isfinite(loss.total.detach() + norm):
            raise NumericalError(not_finite(self.members[e], loss, moment))
        for name, parameter in model.named_parameters():
            leaf = self.stacked[name]
            if leaf.grad is not None and parameter.grad is not None:
                leaf.grad[e] = parameter.grad
            parameter.grad = None
        return loss.parts.detach()

    def _update(self) -> None:
        """One step of the optimiser."""
        self.optimiser.step()

    def _clip(self, norm: Tensor) -> None:
        """Bound each member's gradient by itself; `norm` is what it is now, [E]."""
        assert self.optim.clip is not None
        scale = (self.optim.clip / (norm + 1e-6)).clamp_max(1.0)  # [E]
        for leaf in self.leaves:
            if leaf.grad is not None:
                leaf.grad.mul_(scale.view(-1, *[1] * (leaf.ndim - 1)))

    def _norm(self) -> Tensor:
        """Norm of each member's gradient, [E]."""
        squares = [
            leaf.grad.reshape(len(leaf), -1).square().sum(1) for leaf in self.leaves if leaf.grad is not None
        ]
        return torch.stack(squares).sum(0).sqrt()


@contextmanager
def without_trace(model: Transformer) -> Iterator[None]:
    """After the block the model's buffers and torch's generators are as they were."""
    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
        yield
    for name, buffer in model.named_buffers():
        buffer.copy_(kept[name])


class LossModule(nn.Module):
    """A method's loss on a model as a module: its parameters can be replaced, and it can be wrapped."""

    def __init__(self, method: Method, model: Transformer) -> None:
        super().__init__()
        self.method, self.model = method, model
        self.weights: Weights = (0.0, 0.0)

    def forward(self, batch: Batch, progress: Progress) -> Tensor:
        """The parts of the loss and their weighted sum, [4]."""
        loss = self.method.loss(self.model, batch, progress)
        self.weights = (loss.weight_g, loss.weight_a)
        return loss.parts


def one_length(config: ModelConfig) -> bool:
    """Whether all sequences that a model reads have one length, as images do."""
    return isinstance(config.embedding, PatchConfig)


def can_stack(members: Sequence[Member]) -> bool:
    """Whether these models can train at once."""
    return len(members) > 1 and one_length(members[0].model.config)


def random_state() -> dict[str, Tensor]:
    """The state of torch's generators."""
    state = {"cpu": torch.get_rng_state()}
    return state | ({"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {})


def set_random_state(state: dict[str, Tensor]) -> None:
    """Bring torch's generators back to a state."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def not_finite(member: Member, loss: Loss, moment: StepInfo) -> str:
    """Which part of a loss, or which gradient, is not finite, and what to do about it."""
    parts = {"nll": loss.nll, "kl_g": loss.kl_g, "kl_a": loss.kl_a}
    bad = [name for name, value in parts.items() if not value.isfinite()]
    bad += [
        n for n, p in member.model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()
    ]
    return (
        f"{member.name}, step {moment.step + 1}: {bad[0] if bad else 'the gradient norm'} is not finite; "
        f"lower the learning rate (lr={moment.lr:g}) or set clip; the last checkpoint is kept"
    )
