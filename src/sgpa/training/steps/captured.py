"""A training step recorded once as a CUDA graph and replayed: nothing is launched from Python any more.

At the paper's sizes a step is hundreds of small operations whose launch takes longer than their work. The
recorded step gives the numbers of the plain one: learning rate and moment of training are read from tensors,
random numbers go on from each member's generator.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sgpa.core.errors import NumericalError, first_line
from sgpa.core.inputs import Batch, Inputs, tensors_of
from sgpa.core.noise import Draw
from sgpa.gp.objective import Progress
from sgpa.training.steps.plain import Member, Stacked, Step, StepInfo, one_length
from sgpa.training.steps.stacking import shape_of, side_by_side

COLUMNS = 16  # that the length of sequences is a multiple of
TOLERATED = 5  # steps of an epoch whose loss may fail to be finite

log = logging.getLogger(__name__)


class Captured(Stacked):
    """Stacked models whose step is recorded, once for every shape of batches that comes often.

    Sequences of several lengths are filled up to a multiple of `COLUMNS`, so that few shapes occur. A step
    whose loss or gradient is not finite changes nothing; `skipped` counts such steps.
    """

    failed = False
    warm_up = 3  # plain steps of a shape before it is recorded: libraries choose their algorithms there
    most = 32  # recordings

    def __enter__(self) -> "Captured":
        if not hasattr(self, "stacked"):
            super().__enter__()
            for group in self.optimiser.param_groups:
                group["capturable"] = True
            self.lr, self.fraction = (torch.zeros((), device=self.device) for _ in range(2))
            self.skipped = torch.zeros((), device=self.device)
            self.parts = torch.zeros(len(self.members), 3, device=self.device)
            self.weights = torch.zeros(2, device=self.device)
            self.seen: Counter[tuple[int, ...]] = Counter()
            self.recordings: dict[tuple[int, ...], Recorded] = {}
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

    def step(self, batches: Sequence[Batch], moment: StepInfo) -> Step:
        """One step of every member on its own batch."""
        batches = [Batch(self._fitted(batch.inputs), batch.targets) for batch in batches]
        shape = shape_of(batches[0])
        self.seen[shape] += 1
        if shape not in self.recordings and self._due(shape, moment):
            self._record(shape, batches, moment)
        if (recorded := self.recordings.get(shape)) is None:
            return super().step(batches, moment)
        self._load(recorded, batches, moment)
        recorded.graph.replay()
        return Step(self.parts.clone(), self.weights[0], self.weights[1])

    def _fitted(self, inputs: Inputs) -> Inputs:
        """Inputs of one of few shapes."""
        model = self.members[0].model
        return inputs if one_length(model.config) else model.trimmed(inputs, COLUMNS)

    def _due(self, shape: tuple[int, ...], moment: StepInfo) -> bool:
        """Whether it is time to record steps of this shape."""
        del moment
        return not self.failed and self.seen[shape] > self.warm_up and len(self.recordings) < self.most

    def _load(self, into: "Recorded", batches: Sequence[Batch], moment: StepInfo) -> None:
        """Put what changes from step to step where the recording reads it."""
        each = zip(*(tensors_of(batch.inputs) for batch in batches), strict=True)
        for tensor, parts in zip(tensors_of(into.inputs), each, strict=True):
            torch.stack(parts, out=tensor)
        torch.stack([batch.targets for batch in batches], out=into.targets)
        self.lr.fill_(moment.lr)
        self.fraction.fill_(moment.progress.fraction)

    def _record(self, shape: tuple[int, ...], batches: Sequence[Batch], moment: StepInfo) -> None:
        rows, draws = moment.progress.dataset_size, self._draws(batches[0], moment.progress)
        if not self._recordable(batches[0], rows):
            self.failed = True
            return
        recorded = Recorded(*side_by_side(batches), torch.cuda.CUDAGraph())
        states = [generator.get_state() for generator in self.generators]
        self._prepare(recorded, draws, rows)
        for generator in self.generators:
            recorded.graph.register_generator_state(generator)
        self.optimiser.zero_grad(set_to_none=True)
        try:
            with torch.cuda.graph(recorded.graph, pool=self._pool()):
                self._body(recorded, draws, rows)
            self.recordings[shape] = recorded
        except RuntimeError as error:
            self._give_up(error)
        self.optimiser.zero_grad(set_to_none=True)
        vars(self.optimiser).pop("found_inf", None)
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state)

    def _pool(self) -> Any:
        """Recordings never run at the same time: they share their memory."""
        return next((recorded.graph.pool() for recorded in self.recordings.values()), None)

    def _give_up(self, error: Exception) -> None:
        self.failed = True
        log.warning(
            "the training step cannot be recorded and takes the slower, plain way: %s", first_line(error)
        )

    def _prepare(self, recorded: "Recorded", draws: list[Draw], rows: int) -> None:
        """What has to be done before the recording."""

    def _recordable(self, batch: Batch, rows: int) -> bool:
        """Whether the loss runs through without the processor waiting for a value, in a rehearsal."""
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            self._rehearse(batch, Progress(self.fraction, rows))
        except (RuntimeError, TypeError) as error:
            self._give_up(error)
            return False
        finally:
            torch.cuda.set_sync_debug_mode(mode)
        return True

    def _body(self, given: "Recorded", draws: list[Draw], rows: int) -> None:
        """Draw, pass, update: all that is recorded."""
        progress = Progress(self.fraction, rows)
        parts, weights = self._passes(given.inputs, given.targets, self._numbers(draws), progress)
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


@dataclass(frozen=True)
class Recorded:
    """The steps of batches of one shape."""

    inputs: Inputs  # stacked, [E, B, ...]
    targets: Tensor  # [E, B]
    graph: torch.cuda.CUDAGraph


def can_capture(members: Sequence[Member]) -> bool:
    """Whether a step can be recorded: on a GPU, of one model or of several that are stacked."""
    model = members[0].model
    return model.device.type == "cuda" and (len(members) == 1 or one_length(model.config))
