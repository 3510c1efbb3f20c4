"""Settings of the optimiser as frozen data, and the optimiser."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from sgpa.core.arguments import checked
from sgpa.core.errors import check_fields
from sgpa.core.limits import LARGEST, is_scale
from sgpa.models.bayesian import BayesianLinear

MOST = 1_000_000  # epochs, and rows of a step
MAX_LR = 1e3
SELECTIONS = ("nll", "accuracy", "mae", "last")


@checked
@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Adam with a learning rate that rises linearly for `warmup` epochs and then falls linearly.

    Args:
        epochs: Passes over the training rows.
        batch_size: Rows of a step.
        lr: The highest learning rate.
        final_lr: The last learning rate.
        warmup: Epochs of linear increase.
        clip: Upper bound on the norm of the gradient.
        weight_decay: Every step multiplies the weights of linear maps (`decayed`) by 1 - lr weight_decay.
        select: The validation metric that selects the epoch to keep; "last" keeps the last epoch.
        select_every: Epochs between two validations.
        patience: Training stops after so many validations without a new best; by default it never does.

    Example:
        >>> OptimConfig(epochs=20, lr=1e-3).lr_at(step=0, steps_per_epoch=10)
        0.001
    """

    epochs: int = 600
    batch_size: int = 100
    lr: float = 5e-4
    final_lr: float = 1e-5
    warmup: int = 0
    clip: float | None = None
    weight_decay: float = 0.0
    select: str = "nll"
    select_every: int = 10
    patience: int | None = None

    def __post_init__(self) -> None:
        decay = self.weight_decay
        check_fields(
            "optim",
            [
                ("epochs", self.epochs, 1 <= self.epochs <= MOST, f"1 to {MOST}"),
                ("batch_size", self.batch_size, 1 <= self.batch_size <= MOST, f"1 to {MOST}"),
                ("lr", self.lr, 0 < self.lr < MAX_LR, f"above 0 and below {MAX_LR:g}"),
                ("final_lr", self.final_lr, 0 <= self.final_lr <= self.lr, f"0 to lr={self.lr}"),
                ("warmup", self.warmup, 0 <= self.warmup < self.epochs, "0 up to, but not, epochs"),
                ("clip", self.clip, self.clip is None or is_scale(self.clip), "positive, or none"),
                ("weight_decay", decay, 0 <= decay <= LARGEST, f"0 to {LARGEST:g}"),
                ("select", self.select, self.select in SELECTIONS, ", ".join(SELECTIONS)),
                ("select_every", self.select_every, self.select_every >= 1, "1 or more"),
                (
                    "patience",
                    self.patience,
                    self.patience is None or self.patience >= 1,
                    "1 or more, or none",
                ),
            ],
        )

    def split(self, share: float) -> "tuple[OptimConfig, OptimConfig]":
        """Two stages, of which the first has this share of the epochs, each with a schedule of its own.

        >>> [stage.epochs for stage in OptimConfig(epochs=10).split(0.2)]
        [2, 8]
        """
        first = max(1, min(self.epochs - 1, round(share * self.epochs)))
        one, two = (
            replace(self, epochs=n, warmup=min(self.warmup, n - 1))
            for n in (first, max(1, self.epochs - first))
        )
        return one, two

    def lr_at(self, step: int, steps_per_epoch: int) -> float:
        """Learning rate of a step."""
        warm, total = self.warmup * steps_per_epoch, self.epochs * steps_per_epoch
        if step < warm:
            return self.lr * (step + 1) / warm
        return self.lr + (self.final_lr - self.lr) * (step - warm) / max(1, total - warm - 1)


def decayed(model: nn.Module) -> set[str]:
    """The parameters that weight decay shrinks: weights of linear maps, without means of Bayesian ones."""
    maps = [m for m in model.modules() if isinstance(m, nn.Linear) and not isinstance(m, BayesianLinear)]
    weights = {id(m.weight) for m in maps}
    return {name for name, p in model.named_parameters() if id(p) in weights}


def adam(optim: OptimConfig, model: nn.Module, values: Mapping[str, Tensor]) -> torch.optim.Adam:
    """Adam, or AdamW where there is weight decay, for the parameters of a model by name."""
    leaves = {name: value for name, value in values.items() if value.requires_grad}
    if not optim.weight_decay:
        return torch.optim.Adam(list(leaves.values()), lr=optim.lr, fused=True)
    shrunk = decayed(model)
    groups = [
        {"params": [leaves[n] for n in leaves if n in shrunk], "weight_decay": optim.weight_decay},
        {"params": [leaves[n] for n in leaves if n not in shrunk], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=optim.lr, fused=True)
