"""One model trained by several processes: each takes a share of every batch, and gradients are averaged.

The result is that of one process up to rounding: every process sees the same batches in the same order, draws
the random numbers of the whole batch and keeps those of its own rows (`noise.Shard`).
"""

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from sgpa.core.errors import SgpaError
from sgpa.core.inputs import Batch
from sgpa.core.noise import Shard, source
from sgpa.core.types import Loss
from sgpa.gp.objective import Progress
from sgpa.methods import Method
from sgpa.models import Transformer
from sgpa.training import process_group
from sgpa.training.steps.base import LossModule, RunState, without_trace


class SharedPass:
    """The loss of a batch whose rows are split over processes; gradients travel during the backward pass.

    A `PlainStep` with this forward pass trains one model with all processes.
    """

    def __init__(self, state: RunState, method: Method) -> None:
        self.state, self.method = state, method
        self.rank, self.world = process_group.rank(), process_group.world()
        self.connected: DistributedDataParallel | None = None

    def __call__(self, batch: Batch, progress: Progress) -> tuple[Loss, Tensor]:
        """The loss of the whole batch, and this process's part of it.

        Averaged over processes, Σ_r (n_r / B) (nll_r + w_a KL_a,r) + w_g KL_g: the mean of a share counts by
        its rows n_r of B, the global KL once.
        """
        shard, rows = share(len(batch), self.rank, self.world)
        part = rows / len(batch)
        mine = cut(self.state.model, batch, shard)
        if self.connected is None:
            self.connected = self._connect(cut(self.state.model, batch, Shard(0, 1, 1)), progress)
        zero, error = torch.zeros((), device=batch.targets.device), None
        loss = Loss(zero, zero, zero)
        try:
            with source(shard):
                loss = self.connected(mine, progress)
        except SgpaError as failed:
            error = failed  # reported below, so that no process waits for this one's gradients
        scaled = torch.stack([part * loss.nll, loss.kl_g / self.world, part * loss.kl_a]).detach()
        nll, kl_g, kl_a = process_group.summed(scaled, error)
        objective = self.world * part * (loss.nll + loss.weight_a * loss.kl_a) + loss.weight_g * loss.kl_g
        return Loss(nll, kl_g, kl_a, loss.weight_g, loss.weight_a), objective

    def close(self) -> None:
        """Stop exchanging gradients: the model is an ordinary one again."""
        self.connected = None

    def _connect(self, example: Batch, progress: Progress) -> DistributedDataParallel:
        """Exchange gradients from now on; a pass over an example shows whether some parameters get none."""
        model = self.state.model
        module = LossModule(self.method, model)
        leaves = [p for p in model.parameters() if p.requires_grad]
        with without_trace(model):
            loss = module(example, progress)
            gradients = torch.autograd.grad(loss.parts.sum(), leaves, allow_unused=True)
        unused = any(gradient is None for gradient in gradients)
        return DistributedDataParallel(module, find_unused_parameters=unused)


def share(rows: int, rank: int, world: int) -> tuple[Shard, int]:
    """The rows of a batch that belong to a process, and how many they are.

    Where there are fewer rows than processes, a process without any takes a row that counts nothing.
    """
    start, stop = rows * rank // world, rows * (rank + 1) // world
    first = min(start, rows - 1)
    return Shard(first, max(stop, first + 1), rows), stop - start


def cut(model: Transformer, batch: Batch, shard: Shard) -> Batch:
    """The rows of a share, as wide as the whole batch."""
    rows = slice(shard.start, shard.stop)
    return Batch(model.trimmed(batch.inputs)[rows], batch.targets[rows])
