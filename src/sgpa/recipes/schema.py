"""An experiment as frozen data: everything a run needs, and everything it saves about itself."""

from dataclasses import dataclass

from sgpa.methods import Mle, Sgpa
from sgpa.models import ModelConfig
from sgpa.optim import OptimConfig


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A task, a Transformer for it, and how each method is trained.

    MLE trains with `optim`. SGPA starts from an MLE model trained with `warm` and goes on with
    `sgpa_optim`, so that both see the data equally often.
    """

    name: str
    model: ModelConfig
    mle: Mle
    optim: OptimConfig
    sgpa: Sgpa
    warm: OptimConfig
    sgpa_optim: OptimConfig
    seeds: int = 3
