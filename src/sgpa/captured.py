"""A training step recorded once as a CUDA graph and replayed: nothing is launched from Python any more.

At the paper's sizes a step is hundreds of small operations whose launch takes longer than their work. The
recorded step gives the numbers of the plain one: learning rate and moment of training are read from tensors,
random numbers go on from each member's generator.
"""

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from sgpa.errors import NumericalError
from sgpa.linalg import unchecked
from sgpa.noise import Draw
from sgpa.objectives import Progress
from sgpa.stepping import Member, Moment, Stacked, Step, images, one_length
from sgpa.types import Batch

TOLERATED = 5  # steps of an epoch whose loss may fail to be finite

log = logging.getLogger(__name__)


class Captured(Stacked):
    """Stacked models whose step is recorded. Batches of another shape than the first take the plain way.

    A step whose loss or gradient is not finite changes nothing; `skipped` counts such steps.
    """

    graph: torch.cuda.CUDAGraph | None = None
    shape: tuple[int, ...] | None = None
    failed = False
    steps = 0
    warm_up = 3  # plain steps before the recording: libraries choose their algorithms there

    def __enter__(self) -> "Captured":
        if not hasattr(self, "stacked"):
            super().__enter__()
            for group in self.optimiser.param_groups:
                group["capturable"] = True
            self.lr, self.fraction = (torch.zeros((), device=self.device) for _ in range(2))
            self.skipped = torch.zeros((), device=self.device)
        for member, generator in zip(self.members, self.generators, strict=True):
            generator.set_state(member.random[self.device.type])
        return self

    def __exit__(self, *_: object) -> None:
        self.publish()
        skipped, self.skipped = int(self.skipped), self.skipped.zero_()
        if skipped > TOLERATED:
            raise NumericalError(
                f"{skipped} steps of an epoch had a loss or gradient that is not finite; lower the learning "
                "rate or set clip; the last checkpoint is kept"
            )
        if skipped:
            log.warning("%d steps were skipped: their loss or gradient was not finite", skipped)

    def close(self) -> None:
        """Give every member tensors of its own again."""
        super().__exit__()

    def step(self, batches: Sequence[Batch], moment: Moment) -> Step:
        """One step of every member on its own batch."""
        shape = tuple(images(batches[0].inputs).shape)
        self.shape = self.shape or shape
        self.steps += 1
        if self.failed or self.steps <= self.warm_up or shape != self.shape:
            return super().step(batches, moment)
        if self.graph is None:
            self._record(batches, moment)
            if self.graph is None:
                return super().step(batches, moment)
        self._load(batches, moment)
        self.graph.replay()
        return Step(self.parts.clone(), self.weights[0], self.weights[1])

    def _load(self, batches: Sequence[Batch], moment: Moment) -> None:
        """Put what changes from step to step where the recording reads it."""
        torch.stack([images(batch.inputs) for batch in batches], out=self.inputs)
        torch.stack([batch.targets for batch in batches], out=self.targets)
        self.lr.fill_(moment.lr)
        self.fraction.fill_(moment.progress.fraction)

    def _record(self, batches: Sequence[Batch], moment: Moment) -> None:
        self.inputs = torch.stack([images(batch.inputs) for batch in batches])
        self.targets = torch.stack([batch.targets for batch in batches])
        draws = self._draws(batches[0], moment.progress)
        self.parts = torch.zeros(len(self.members), 3, device=self.device)
        self.weights = torch.zeros(2, device=self.device)
        if not self._recordable(batches[0], moment.progress.dataset_size):
            self.failed = True
            return
        states = [generator.get_state() for generator in self.generators]
        self._prepare(draws, moment.progress.dataset_size)
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        self.optimiser.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self._body(draws, moment.progress.dataset_size)
        self.graph = graph
        self.optimiser.zero_grad(set_to_none=True)
        vars(self.optimiser).pop("found_inf", None)
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state)

    def _prepare(self, draws: list[Draw], rows: int) -> None:
        """What has to be done before the recording."""

    def _recordable(self, batch: Batch, rows: int) -> bool:
        """Whether the loss runs through without the processor waiting for a value, in a rehearsal."""
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            with unchecked():
                self._rehearse(batch, Progress(self.fraction, rows))
        except (RuntimeError, TypeError) as error:
            reason = str(error).splitlines()[0]
            log.warning("the training step cannot be recorded and takes the slower, plain way: %s", reason)
            return False
        finally:
            torch.cuda.set_sync_debug_mode(mode)
        return True

    def _body(self, draws: list[Draw], rows: int) -> None:
        """Draw, pass, update: all that is recorded."""
        progress = Progress(self.fraction, rows)
        parts, weights = self._passes(self.inputs, self.targets, self._numbers(draws), progress)
        norm = self._norm()  # [E]
        bad = (~torch.isfinite(parts[:, 3].detach() + norm)).any().float()
        if self.optim.clip is not None:
            self._clip(norm)
        for group in self.optimiser.param_groups:
            group["lr"] = self.lr
        self.optimiser.found_inf = bad  # type: ignore[attr-defined]
        self._update()
        self.skipped += bad
        self.parts.copy_(parts.detach()[:, :3])
        for into, weight in zip(self.weights, weights, strict=True):
            into.copy_(weight) if isinstance(weight, Tensor) else into.fill_(weight)


def can_capture(members: Sequence[Member]) -> bool:
    """Whether a step can be recorded: on a GPU, where all sequences have one length."""
    model = members[0].model
    return model.device.type == "cuda" and one_length(model.config)
