"""The calibrators of an audit: each is fitted once and turns what was collected into probabilities."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from sgpa.experiments.audit.collect import Collected
from sgpa.methods.laplace import GRID, Curvature, probit
from sgpa.methods.scaling import Affine


@dataclass(frozen=True)
class LogitCalibrators:
    """Temperature, vector and structured matrix scaling of one set of logits."""

    temperature: float
    vector: Affine
    matrix: Affine

    def each(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """Method -> what turns logits [N, K] into probabilities."""
        return {
            "temperature": lambda f: (f.double() / self.temperature).softmax(-1),
            "vector": lambda f: self.vector.logits(f).softmax(-1),
            "matrix": lambda f: self.matrix.logits(f).softmax(-1),
        }

    def probabilities(self, f: Tensor) -> dict[str, Tensor]:
        """By method, [N, K] each."""
        return {name: calibrate(f) for name, calibrate in self.each().items()}


@dataclass(frozen=True)
class LastLayerLaplace:
    """A Gaussian over the weights of the last layer; `sgpa.methods.laplace` has the equations.

    Curvature is that of the rows of the statistics, which are fewer than the model was trained on; the prior
    precision δ, chosen by the NLL of held-out rows, also makes up for that.
    """

    curvature: Curvature
    delta: float

    @staticmethod
    def fit(statistics: Collected, held_out: Collected) -> "LastLayerLaplace":
        """Fit to features; δ is the number of a grid with the lowest NLL of labelled rows."""
        assert held_out.targets is not None
        p = statistics.logits.double().softmax(-1)
        curvature = Curvature.of(statistics.head.double(), p)
        y = held_out.targets.unsqueeze(-1)

        def nll(delta: float) -> float:
            probabilities = LastLayerLaplace(curvature, delta).probabilities(held_out.head, held_out.logits)
            return -float(probabilities.gather(-1, y).clamp_min(1e-300).log().mean())

        return LastLayerLaplace(curvature, min(GRID, key=nll))

    def probabilities(self, phi: Tensor, f: Tensor) -> Tensor:
        """softmax(f_k / √(1 + π Σ_kk / 8)) of features [N, E] and logits [N, K]."""
        return probit(f.double(), self.curvature.variance(phi.double(), self.delta), self.curvature.Q)

    @property
    def numbers(self) -> int:
        """How many numbers are stored."""
        return sum(x.numel() for x in self.curvature.tensors().values()) + 1


def mixture(draws: Tensor, temperature: float) -> Tensor:
    """Mean of softmax(f_s / T) over draws [S, N, K], [N, K]."""
    return (draws.double() / temperature).softmax(-1).mean(0)


def penalty_words(matrix: Affine) -> str:
    """The penalties that cross-validation chose."""
    if all(math.isinf(penalty) for penalty in matrix.penalties):
        return "only a temperature is left"
    shown = ["off" if math.isinf(penalty) else f"{penalty:g}" for penalty in matrix.penalties]
    return f"penalty of diagonal and intercept {shown[0]}, of other weights {shown[1]}"
