"""A plan: which stages train a method, one after another, and which method predicts."""

from dataclasses import dataclass, replace

from sgpa.methods import Method
from sgpa.models import ModelConfig
from sgpa.training.optim import OptimConfig
from sgpa.training.selection import suffix


@dataclass(frozen=True)
class Stage:
    """One training. `name` is the name of its folder, so that plans share stages of the same name.

    Methods in `extra_selectors` select an epoch of it by their own predictions. `dropout` is by default the
    model's.
    """

    name: str
    method: Method
    optim: OptimConfig
    extra_selectors: tuple[Method, ...] = ()
    dropout: float | None = None

    def model(self, config: ModelConfig) -> ModelConfig:
        """The task's model with this stage's dropout."""
        return config if self.dropout is None else replace(config, dropout=self.dropout)


@dataclass(frozen=True)
class Plan:
    """How a method with one kind of attention is trained. Each stage starts from the weights of the last.

    The method predicts with the model that the last stage kept for it.
    """

    method: Method
    attention: str
    stages: tuple[Stage, ...]

    @property
    def suffix(self) -> str:
        """Of the model that the last stage kept for the method; empty unless it is an extra selector."""
        return suffix(self.method) if self.method in self.stages[-1].extra_selectors else ""

    @property
    def name(self) -> str:
        """For files and progress bars."""
        return f"{self.attention}-{self.method.id}"

    def steps(self, rows: int) -> int:
        """Of all stages of one member, for a number of training rows."""
        return sum(stage.optim.epochs * -(-rows // stage.optim.batch_size) for stage in self.stages)

    def members(self, seed: int) -> tuple[int, ...]:
        """The seeds of the models it predicts with."""
        return self.method.member_seeds(seed)


def plan_of(method: Method, optim: OptimConfig, attention: str = "kernel") -> Plan:
    """The plan of a user's method: one stage, from scratch."""
    return Plan(method, attention, (Stage(method.trains.id, method.trains, optim),))
