"""A plan: which stages train a method, one after another, and which method predicts."""

from dataclasses import dataclass, replace

from sgpa.methods import Method
from sgpa.models import ModelConfig
from sgpa.training.optim import OptimConfig
from sgpa.training.selection import suffix


@dataclass(frozen=True)
class Stage:
    """One training; `name` is what its folder is called, so trainings of one name are shared.

    Methods in `also` choose an epoch of it by their own predictions. `dropout` is by default the model's.
    """

    name: str
    method: Method
    optim: OptimConfig
    also: tuple[Method, ...] = ()
    dropout: float | None = None

    def model(self, config: ModelConfig) -> ModelConfig:
        """The task's model as this training has it."""
        return config if self.dropout is None else replace(config, dropout=self.dropout)


@dataclass(frozen=True)
class Plan:
    """A method with one kind of attention. Each training starts from the weights of the one before.

    The method predicts with the model that the last training kept for it.
    """

    method: Method
    attention: str
    stages: tuple[Stage, ...]

    @property
    def suffix(self) -> str:
        """Of what the last training kept for the method: empty where the method is not one of its `also`."""
        return suffix(self.method) if self.method in self.stages[-1].also else ""

    @property
    def name(self) -> str:
        """For files and progress bars."""
        return f"{self.attention}-{self.method.id}"

    def members(self, seed: int) -> tuple[int, ...]:
        """The seeds of the models it predicts with."""
        return self.method.member_seeds(seed)


def plan_of(method: Method, optim: OptimConfig, attention: str = "kernel") -> Plan:
    """The plan of a method of one's own: trained once, from scratch."""
    return Plan(method, attention, (Stage(method.trains.id, method.trains, optim),))
