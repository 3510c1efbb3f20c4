"""How a model is optimised, as frozen data."""

from dataclasses import dataclass

from sgpa.errors import check_fields

SELECTIONS = ("nll", "accuracy", "mae", "last")


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Adam with a learning rate that rises linearly for `warmup` epochs and then falls linearly.

    `select` names the validation metric that picks the epoch to keep, looked at every `select_every`
    epochs; `last` keeps the last epoch. `clip` bounds the norm of the gradient.
    """

    epochs: int = 600
    batch_size: int = 100
    lr: float = 5e-4
    final_lr: float = 1e-5
    warmup: int = 0
    clip: float | None = None
    select: str = "nll"
    select_every: int = 10

    def __post_init__(self) -> None:
        check_fields(
            "optim",
            [
                ("epochs", self.epochs, self.epochs >= 1, "1 or more"),
                ("batch_size", self.batch_size, self.batch_size >= 1, "1 or more"),
                ("lr", self.lr, 0 < self.lr < 1e3, "positive"),
                ("final_lr", self.final_lr, 0 <= self.final_lr <= self.lr, f"0 to lr={self.lr}"),
                ("warmup", self.warmup, 0 <= self.warmup < self.epochs, "0 up to, but not, epochs"),
                ("clip", self.clip, self.clip is None or self.clip > 0, "positive, or none"),
                ("select", self.select, self.select in SELECTIONS, ", ".join(SELECTIONS)),
                ("select_every", self.select_every, self.select_every >= 1, "1 or more"),
            ],
        )

    def lr_at(self, step: int, steps_per_epoch: int) -> float:
        """Learning rate of a step."""
        warm, total = self.warmup * steps_per_epoch, self.epochs * steps_per_epoch
        if step < warm:
            return self.lr * (step + 1) / warm
        return self.lr + (self.final_lr - self.lr) * (step - warm) / max(1, total - warm - 1)
