"""The ELBO (eq:elbo) as the sum of its parts, and the weight of each part."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from sgpa.core.arguments import checked
from sgpa.core.errors import check_fields
from sgpa.core.types import Loss, ModelOutput
from sgpa.gp.likelihoods import Likelihood

Weight = float | Literal["1/N"]
WEIGHTS = "a number that is not negative, or '1/N'"


def is_weight(weight: Weight) -> bool:
    """Whether it is one of `WEIGHTS`."""
    return weight == "1/N" if isinstance(weight, str) else 0 <= weight < float("inf")


@dataclass(frozen=True)
class Progress:
    """The progress of training."""

    fraction: float | Tensor  # 0 at the first step, 1 at the last; a tensor where a step is captured
    dataset_size: int  # N, training sequences


@checked
@dataclass(frozen=True, kw_only=True)
class KlWeights:
    """Weights of the two KL parts relative to the mean log-likelihood of a sequence.

    u_g is shared by all N sequences, so the ELBO of the data set counts its KL once: weight 1/N per
    sequence. The ELBO as printed, for a single sequence, has weight 1 for both parts
    (`KlWeights(g=1.0, a=1.0)`). A weight of 0 for `a` reads K_qa v_a as the GP's mean function.

    Args:
        g: weight of KL(q(u_g) | p(u_g)), a number or "1/N".
        a: weight of the part of the amortised keys, a number or "1/N".
        anneal: share of the training in which both weights grow linearly from 0.

    Example:
        >>> KlWeights(a=0.0, anneal=0.2).g
        '1/N'
    """

    g: Weight = "1/N"
    a: Weight = "1/N"
    anneal: float = 0.5

    def __post_init__(self) -> None:
        check_fields(
            "kl",
            [
                ("g", self.g, is_weight(self.g), WEIGHTS),
                ("a", self.a, is_weight(self.a), WEIGHTS),
                ("anneal", self.anneal, 0 <= self.anneal <= 1, "0 to 1"),
            ],
        )

    def at(self, progress: Progress) -> tuple[float | Tensor, float | Tensor]:
        """The two weights (g, a) at this progress of training."""
        done = progress.fraction / self.anneal if self.anneal else 1.0
        ramp = done.clamp_max(1.0) if isinstance(done, Tensor) else min(1.0, done)

        def value(weight: Weight) -> float | Tensor:
            return ramp * (1 / progress.dataset_size if isinstance(weight, str) else weight)

        return value(self.g), value(self.a)


def negative_elbo(
    output: ModelOutput,
    likelihood: Likelihood,
    targets: Tensor,
    weights: tuple[float | Tensor, float | Tensor] = (0.0, 0.0),
) -> Loss:
    """-E_q[log p(y | F^L)] and the KL parts of a batch; weights (0, 0) give maximum likelihood."""
    nll = likelihood.nll(output.f, targets).mean()
    return Loss(nll, output.kl_g, output.kl_a, *weights)
