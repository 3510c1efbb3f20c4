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
from sgpa.training.optim import OptimConfig
from sgpa.training.steps.plain import LossModule, Member, PlainStep, StepInfo, without_trace


class DataParallel(PlainStep):
    """A step whose rows are shared out over processes; gradients travel during the backward pass."""

    def __init__(self, member: Member, method: Method, optim: OptimConfig) -> None:
        super().__init__(member, method, optim)
        self.rank, self.world = process_group.rank(), process_group.world()
        self.shares: DistributedDataParallel | None = None

    def loss(self, batch: Batch, moment: StepInfo) -> tuple[Loss, Tensor]:
        """The loss of the whole batch, and this process's part of it.

        Averaged over processes, Σ_r (n_r / B) (nll_r + w_a KL_a,r) + w_g KL_g: the mean of a share counts by
        its rows n_r of B, the global KL once.
        """
        shard, rows = share(len(batch), self.rank, self.world)
        part = rows / len(batch)
        mine = cut(self.member.model, batch, shard)
        if self.shares is None:
            self.shares = self._connect(cut(self.member.model, batch, Shard(0, 1, 1)), moment.progress)
        error = None
        parts, weights = torch.zeros(3, device=batch.targets.device), (0.0, 0.0)
        try:
            with source(shard):
                parts = self.shares(mine, moment.progress)[:3]  # nll, kl_g, kl_a
            weights = self.shares.module.weights
        except SgpaError as failed:
            error = failed  # told below, so that nobody waits for this process's gradients
        nll, kl_g, kl_a = parts
        scaled = torch.stack([part * nll, kl_g / self.world, part * kl_a]).detach()
        whole = process_group.summed(scaled, error)
        weight_g, weight_a = weights
        objective = self.world * part * (nll + weight_a * kl_a) + weight_g * kl_g
        return Loss(whole[0], whole[1], whole[2], weight_g, weight_a), objective

    def close(self) -> None:
        """Stop exchanging gradients: the model is an ordinary one again."""
        self.shares = None

    def _connect(self, example: Batch, progress: Progress) -> DistributedDataParallel:
        """Exchange gradients from now on; a pass over an example shows whether some parameters get none."""
        model = self.member.model
        module = LossModule(self.method, model)
        leaves = [p for p in model.parameters() if p.requires_grad]
        with without_trace(model):
            found = torch.autograd.grad(module(example, progress).sum(), leaves, allow_unused=True)
        unused = any(gradient is None for gradient in found)
        return DistributedDataParallel(module, find_unused_parameters=unused)


def share(rows: int, rank: int, world: int) -> tuple[Shard, int]:
    """The rows of a batch that belong to a process, and how many they are.

    Where there are fewer rows than processes, one without any takes a row that counts nothing.
    """
    start, stop = rows * rank // world, rows * (rank + 1) // world
    first = min(start, rows - 1)
    return Shard(first, max(stop, first + 1), rows), stop - start


def cut(model: Transformer, batch: Batch, shard: Shard) -> Batch:
    """The rows of a share, as wide as the whole batch."""
    rows = slice(shard.start, shard.stop)
    return Batch(model.trimmed(batch.inputs)[rows], batch.targets[rows])
