"""A training step compiled into few kernels and then recorded: pass, gradient and Adam as one graph.

The step is traced once (`make_fx`), random numbers and all that changes from step to step being its inputs;
`torch.compile` merges what it can; the result is recorded as a CUDA graph like any other step. Compiling
takes about a minute, so it is for long trainings. Products with weights run in TF32: the rest of a layer's
arithmetic is in operators that choose their own precision (docs/precision.md).
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from sgpa.core.errors import first_line
from sgpa.core.inputs import Batch, Inputs, made_of, tensors_of
from sgpa.core.noise import Draw
from sgpa.core.precision import matrix_units
from sgpa.gp.objective import Progress
from sgpa.models import ModelConfig, TokenConfig
from sgpa.models.spectral import SpectralLinear
from sgpa.training.optim import decayed
from sgpa.training.steps.captured import Captured, Recorded, can_capture
from sgpa.training.steps.plain import Member, StepInfo

LONG = 10_000  # steps from which on compiling pays
ALIGNED = 64  # numbers: every parameter begins at a multiple of them

log = logging.getLogger(__name__)


class Compiled(Captured):
    """Recorded models whose parameters, and their moments, are slices of one long tensor each.

    Whole batches are compiled, sequences with all the columns that the data set has; an epoch's one batch of
    fewer rows is not worth the time.
    """

    warm_up = 0  # a run that goes on after a stop must take the same way at once
    most = 1  # shape
    compiled: Callable[..., tuple[Tensor, Tensor, Tensor]] | None

    def __enter__(self) -> "Compiled":
        new = not hasattr(self, "stacked")
        super().__enter__()
        if new:
            self._flatten()
        return self

    def _fitted(self, inputs: Inputs) -> Inputs:
        """All columns, whatever they hold: one shape."""
        return inputs

    def _due(self, shape: tuple[int, ...], moment: StepInfo) -> bool:
        whole = min(self.optim.batch_size, moment.progress.dataset_size)  # rows
        return shape[0] == whole and super()._due(shape, moment)

    def _flatten(self) -> None:
        E = len(self.members)
        self.sizes = [-(-leaf[0].numel() // ALIGNED) * ALIGNED for leaf in self.leaves]
        states = [self.optimiser.state.get(leaf, {}) for leaf in self.leaves]
        self.flat, self.first, self.second = (
            torch.zeros(E, sum(self.sizes), device=self.device) for _ in range(3)
        )
        self.counts = torch.zeros(len(self.sizes), device=self.device)
        names = {id(leaf): name for name, leaf in self.stacked.items()}
        self.decay = self._decay(names)
        slots = zip(*(self._slots(t) for t in (self.flat, self.first, self.second)), strict=True)
        for i, (leaf, state, (p, m, v)) in enumerate(zip(self.leaves, states, slots, strict=True)):
            p.copy_(leaf.detach())
            leaf.data = p
            for e, member in enumerate(self.members):
                member.model.get_parameter(names[id(leaf)]).data = p[e]
            if state:
                m.copy_(state["exp_avg"])
                v.copy_(state["exp_avg_sq"])
                self.counts[i] = state["step"]
            self.optimiser.state[leaf] = {"step": self.counts[i], "exp_avg": m, "exp_avg_sq": v}

    def _decay(self, names: dict[int, str]) -> Tensor | None:
        """The weight decay of every number in the long tensors, [1, P], where there is any."""
        if not self.optim.weight_decay:
            return None
        shrunk, rate = decayed(self.members[0].model), self.optim.weight_decay
        each = [torch.full_like(leaf[:1], rate * (names[id(leaf)] in shrunk)) for leaf in self.leaves]
        return _side_by_side(each)

    def _slots(self, flat: Tensor) -> list[Tensor]:
        """The parts of a tensor [E, P] that belong to each leaf, in its shape."""
        pieces = zip(flat.split(self.sizes, 1), self.leaves, strict=True)
        return [piece[:, : leaf[0].numel()].view(leaf.shape) for piece, leaf in pieces]

    def _update(self) -> None:
        """The compiled step's Adam, for steps that take another way: torch's wants tensors without gaps."""
        each = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in self.leaves]
        bad = getattr(self.optimiser, "found_inf", torch.zeros((), device=self.device))
        lr = torch.as_tensor(self.optimiser.param_groups[0]["lr"], device=self.device)
        _adam(self.flat, self.first, self.second, self.counts, _side_by_side(each), lr, bad > 0, self.decay)

    def _record(self, shape: tuple[int, ...], batches: Sequence[Batch], moment: StepInfo) -> None:
        with matrix_units():
            super()._record(shape, batches, moment)

    def _prepare(self, recorded: Recorded, draws: list[Draw], rows: int) -> None:
        """Trace and compile; without a compiled step the plain one is recorded."""
        self.compiled = None
        given = self._given(recorded, draws)
        kept = [t.clone() for t in given[:4]]
        try:
            traced = make_fx(lambda *values: self._whole(rows, recorded.inputs, *values))(*given)
            self.compiled = torch.compile(traced, fullgraph=True, dynamic=False)
            self.compiled(*given)
        except Exception as error:  # whatever a compiler may say: there is another way
            self.compiled = None
            log.warning("the training step cannot be compiled and takes a slower way: %s", first_line(error))
        for t, value in zip(given[:4], kept, strict=True):
            t.copy_(value)

    def _given(self, recorded: Recorded, draws: list[Draw]) -> tuple[Any, ...]:
        """What a compiled step reads; it changes the first four."""
        state = (self.flat, self.first, self.second, self.counts)
        x, y = tensors_of(recorded.inputs), recorded.targets
        return *state, self.lr, self.fraction, x, y, self._numbers(draws)

    def _body(self, given: Recorded, draws: list[Draw], rows: int) -> None:
        if self.compiled is None:
            super()._body(given, draws, rows)
            return
        parts, weights, bad = self.compiled(*self._given(given, draws))
        self.skipped += bad
        self.parts.copy_(parts)
        self.weights.copy_(weights)

    def _whole(
        self, rows: int, like: Inputs, p: Tensor, m: Tensor, v: Tensor, counts: Tensor, lr: Tensor,
        fraction: Tensor, x: list[Tensor], y: Tensor, numbers: list[Tensor],
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Pass, gradient and update: losses [E, 3], weights of the KL parts [2], and 1 if nothing changed."""
        leaves = [slot.requires_grad_() for slot in self._slots(p.detach())]
        replaced = {id(leaf): new for leaf, new in zip(self.leaves, leaves, strict=True)}
        state = {f"model.{name}": replaced.get(id(old), old.detach()) for name, old in self.stacked.items()}
        parts, kl_weights = self._losses(
            state, made_of(like, x), y, numbers, Progress(fraction, rows)
        )  # [E, 4]
        found = torch.autograd.grad(parts[:, 3].sum(), leaves, allow_unused=True)
        gradients = [torch.zeros_like(q) if g is None else g for g, q in zip(found, leaves, strict=True)]
        g = _side_by_side(gradients)  # [E, P]
        parts, norm = parts.detach(), g.square().sum(1).sqrt()  # [E, 4], [E]
        bad = (~torch.isfinite(parts[:, 3] + norm)).any()
        if self.optim.clip is not None:
            g = g * (self.optim.clip / (norm + 1e-6)).clamp_max(1.0).unsqueeze(1)
        _adam(p, m, v, counts, g, lr, bad, self.decay)
        weights = [torch.as_tensor(w, dtype=torch.float32, device=p.device) for w in kl_weights]
        return parts[:, :3], torch.stack(weights), bad.float()


def _side_by_side(gradients: Sequence[Tensor]) -> Tensor:
    """Gradients [E, ...] of all leaves where the leaves are in the long tensor, [E, P]."""
    flat = [g.reshape(len(g), -1) for g in gradients]
    return torch.cat([torch.nn.functional.pad(g, (0, -g.shape[1] % ALIGNED)) for g in flat], 1)


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
    """Whether sequences may all be filled up to the longest: texts differ too much in length for that."""
    return not isinstance(config.embedding, TokenConfig)


def can_compile(members: Sequence[Member], steps: int) -> bool:
    """Whether a step can be compiled and is made often enough: models that change nothing but by gradients,
    and whose attention takes care of its own precision.
    """
    model = members[0].model
    return (
        steps >= LONG
        and can_capture(members)
        and one_width(model.config)
        and not any(isinstance(m, SpectralLinear) for m in model.modules())
        and model.controls_own_precision
    )
