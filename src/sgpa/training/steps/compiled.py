"""A training step compiled into few kernels and then recorded: pass, gradient and Adam as one graph.

The step is traced once (`make_fx`), random numbers and all that changes from step to step being its inputs;
`torch.compile` merges what it can; the result is recorded as a CUDA graph like any other step. Compiling
takes about a minute, so it is for long trainings. Products with weights run in TF32: the rest of a layer's
arithmetic is in operators that choose their own precision (docs/reference/precision.md).
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from sgpa.core.errors import first_line
from sgpa.core.inputs import Batch, Inputs, made_of, tensors_of
from sgpa.core.noise import Playback, source
from sgpa.core.precision import matrix_units, unchecked
from sgpa.gp.objective import Progress
from sgpa.methods import Method
from sgpa.models import ModelConfig, TokenConfig
from sgpa.models.spectral import SpectralLinear
from sgpa.training.optim import OptimConfig, decayed
from sgpa.training.steps.base import LossModule, RunState
from sgpa.training.steps.body import EagerBody
from sgpa.training.steps.captured import can_capture
from sgpa.training.steps.recording import Registers

LONG = 10_000  # steps from which on compiling pays
ALIGNED = 64  # numbers: every parameter begins at a multiple of them

log = logging.getLogger(__name__)


class CompiledBody:
    """A step on parameters, and their moments, that are slices of one long tensor each.

    Whole batches are compiled, sequences with all the columns that the data set has; an epoch's one batch of
    fewer rows is not worth the time.
    """

    warm_up = 0  # a resumed run must take the same path at once
    most = 1  # shape

    def __init__(self, state: RunState, method: Method, optim: OptimConfig) -> None:
        self.state, self.method, self.optim = state, method, optim
        self.eager = EagerBody(state, method, optim, self.update)  # where the step cannot be compiled
        self.compiled: Callable[..., tuple[Tensor, Tensor, Tensor]] | None = None

    def attach(self) -> None:
        """Move parameters and moments into long tensors, [P] each."""
        self.eager.attach()
        model, optimiser = self.state.model, self.state.optimiser
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.leaves = list(named.values())
        self.sizes = [-(-leaf.numel() // ALIGNED) * ALIGNED for leaf in self.leaves]
        device = model.device
        self.flat, self.first, self.second = (torch.zeros(sum(self.sizes), device=device) for _ in range(3))
        self.counts = torch.zeros(len(self.sizes), device=device)
        self.decay = self._decay(list(named))
        slots = zip(*(self._slots(t) for t in (self.flat, self.first, self.second)), strict=True)
        for i, (leaf, (p, m, v)) in enumerate(zip(self.leaves, slots, strict=True)):
            p.copy_(leaf.detach())
            leaf.data = p
            if state := optimiser.state.get(leaf):
                m.copy_(state["exp_avg"])
                v.copy_(state["exp_avg_sq"])
                self.counts[i] = state["step"]
            optimiser.state[leaf] = {"step": self.counts[i], "exp_avg": m, "exp_avg_sq": v}

    def detach(self) -> None:
        """Copy parameters and moments out of the long tensors."""
        for leaf in self.leaves:
            leaf.data = leaf.data.clone()
            state = self.state.optimiser.state[leaf]
            self.state.optimiser.state[leaf] = {name: value.clone() for name, value in state.items()}

    def fit(self, inputs: Inputs) -> Inputs:
        """All columns, whatever they hold: one shape."""
        return inputs

    def wants(self, rows: int, dataset_size: int) -> bool:
        """Only whole batches."""
        return rows == min(self.optim.batch_size, dataset_size)

    def precision(self) -> AbstractContextManager[None]:
        """Products of float32 matrices may run in TF32."""
        return matrix_units()

    def prepare(self, batch: Batch, numbers: list[Tensor], dataset_size: int, registers: Registers) -> None:
        """Trace and compile; without a compiled step the plain one is recorded."""
        self.compiled = None
        given = self._given(batch, numbers, registers)
        kept = [t.clone() for t in given[:4]]
        try:
            traced = make_fx(lambda *values: self._whole(dataset_size, batch.inputs, *values))(*given)
            self.compiled = torch.compile(traced, fullgraph=True, dynamic=False)
            self.compiled(*given)
        except Exception as error:  # compilers fail in many ways; the plain step remains
            self.compiled = None
            log.warning("the training step cannot be compiled and takes a slower way: %s", first_line(error))
        for t, value in zip(given[:4], kept, strict=True):
            t.copy_(value)

    def run(self, batch: Batch, numbers: list[Tensor], dataset_size: int, registers: Registers) -> None:
        """The compiled step, or the eager one where it cannot be compiled."""
        if self.compiled is None:
            self.eager.run(batch, numbers, dataset_size, registers)
            return
        parts, weights, bad = self.compiled(*self._given(batch, numbers, registers))
        registers.skipped.add_(bad)
        registers.outcome[:3].copy_(parts)
        registers.outcome[3:].copy_(weights)

    def update(self) -> None:
        """The compiled step's Adam, for steps that are not compiled: both keep the same moments."""
        optimiser = self.state.optimiser
        each = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in self.leaves]
        bad = getattr(optimiser, "found_inf", torch.zeros((), device=self.flat.device))
        lr = torch.as_tensor(optimiser.param_groups[0]["lr"], device=self.flat.device)
        with torch.no_grad():
            _adam(self.flat, self.first, self.second, self.counts, _joined(each), lr, bad > 0, self.decay)

    def _decay(self, names: Sequence[str]) -> Tensor | None:
        """The weight decay of every number in the long tensors, [P], where there is any."""
        if not self.optim.weight_decay:
            return None
        shrunk, rate = decayed(self.state.model), self.optim.weight_decay
        leaves = zip(names, self.leaves, strict=True)
        return _joined([torch.full_like(leaf.detach(), rate * (name in shrunk)) for name, leaf in leaves])

    def _slots(self, flat: Tensor) -> list[Tensor]:
        """The parts of a tensor [P] that belong to each leaf, in its shape."""
        pieces = zip(flat.split(self.sizes), self.leaves, strict=True)
        return [piece[: leaf.numel()].view(leaf.shape) for piece, leaf in pieces]

    def _given(self, batch: Batch, numbers: list[Tensor], registers: Registers) -> tuple[Any, ...]:
        """What a compiled step reads; it changes the first four."""
        state = (self.flat, self.first, self.second, self.counts)
        return *state, registers.lr, registers.fraction, tensors_of(batch.inputs), batch.targets, numbers

    def _whole(
        self, dataset_size: int, like: Inputs, p: Tensor, m: Tensor, v: Tensor, counts: Tensor, lr: Tensor,
        fraction: Tensor, x: list[Tensor], y: Tensor, numbers: list[Tensor],
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Pass, gradient and update: losses [3], weights of the KL parts [2], and 1 if nothing changed."""
        model = self.state.model
        leaves = [slot.requires_grad_() for slot in self._slots(p.detach())]
        replaced = {id(leaf): new for leaf, new in zip(self.leaves, leaves, strict=True)}
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        state = {f"model.{name}": replaced.get(id(old), old.detach()) for name, old in tensors.items()}
        given = (Batch(made_of(like, x), y), Progress(fraction, dataset_size))
        with source(Playback(numbers)), unchecked():
            loss = torch.func.functional_call(LossModule(self.method, model), state, given)
        parts = loss.parts  # [4]
        gradients = torch.autograd.grad(parts[3], leaves, allow_unused=True)
        g = _joined([torch.zeros_like(q) if d is None else d for d, q in zip(gradients, leaves, strict=True)])
        parts, norm = parts.detach(), g.square().sum().sqrt()  # [4], []
        bad = ~torch.isfinite(parts[3] + norm)
        if self.optim.clip is not None:
            g = g * (self.optim.clip / (norm + 1e-6)).clamp_max(1.0)
        _adam(p, m, v, counts, g, lr, bad, self.decay)
        weights = [
            torch.as_tensor(w, dtype=torch.float32, device=p.device) for w in (loss.weight_g, loss.weight_a)
        ]
        return parts[:3], torch.stack(weights), bad.float()


def _joined(gradients: Sequence[Tensor]) -> Tensor:
    """Gradients of all leaves where the leaves are in the long tensor, [P]."""
    flat = [g.reshape(-1) for g in gradients]
    return torch.cat([torch.nn.functional.pad(g, (0, -g.shape[0] % ALIGNED)) for g in flat])


def _adam(
    p: Tensor, m: Tensor, v: Tensor, counts: Tensor, g: Tensor, lr: Tensor, bad: Tensor, decay: Tensor | None
) -> None:  # fmt: skip
    """One step of torch's Adam, or with decay of its AdamW, in place; nothing where `bad`."""
    first, second = m + 0.1 * (g - m), 0.999 * v + 0.001 * g * g
    done = counts + 1
    size = lr / (1 - 0.9 ** done[0])
    kept = p if decay is None else p * (1 - lr * decay)
    moved = kept - size * first / (second.sqrt() / (1 - 0.999 ** done[0]).sqrt() + 1e-8)
    for old, new in ((p, moved), (m, first), (v, second), (counts, done)):
        old.copy_(torch.where(bad, old, new))


def one_width(config: ModelConfig) -> bool:
    """Whether sequences may all be padded to the longest: texts differ too much in length for that."""
    return not isinstance(config.embedding, TokenConfig)


def can_compile(state: RunState, steps: int) -> bool:
    """Whether a step can be compiled and is made often enough.

    The model must change by gradients alone, and its attention must control its own precision.
    """
    model = state.model
    return (
        steps >= LONG
        and can_capture(state)
        and one_width(model.config)
        and not any(isinstance(m, SpectralLinear) for m in model.modules())
        and model.controls_own_precision
    )
