"""The better of a point model and SGPA, by the NLL of held-out rows."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sgpa.core.types import Predictor
from sgpa.data import Dataset
from sgpa.gp.likelihoods import CategoricalLikelihood, LaplaceLikelihood
from sgpa.methods.temperature import best_temperature
from sgpa.models import Transformer
from sgpa.models.modes import evaluating
from sgpa.training.selection import validate

log = logging.getLogger(__name__)
LEAST_TEMPERATURE = 0.5  # few held-out rows, all of them right, would have T = 0
NAMES = {"sgpa": "SGPA", "ts": "point model + temperature", "mle": "point model"}


@dataclass(frozen=True)
class Comparison:
    """Held-out NLL by method id; the smallest is `chosen`."""

    nll: Mapping[str, float]
    rows: int  # held-out rows

    @property
    def chosen(self) -> str:
        """The id of the better method."""
        return min(self.nll, key=lambda name: self.nll[name])

    def __str__(self) -> str:
        scores = ", ".join(f"{NAMES.get(name, name)} {nll:.3f}" for name, nll in self.nll.items())
        return f"held-out NLL of {self.rows} rows: {scores}; chosen: {NAMES.get(self.chosen, self.chosen)}"


def compare(predictors: Mapping[str, Predictor], held_out: Dataset) -> Comparison:
    """The held-out NLL of each predictor.

    >>> compare({"sgpa": model, "ts": tempered}, held_out).chosen  # doctest: +SKIP
    'sgpa'
    """
    scores = {name: validate(predictor, held_out)["nll"] for name, predictor in predictors.items()}
    return Comparison(scores, len(held_out))


@torch.no_grad()
def fold_temperature(model: Transformer, held_out: Dataset) -> bool:
    """Divide the weights of a classifier's head by the temperature that suits held-out rows best.

    The model then predicts softmax(f / T) itself; T is at least `LEAST_TEMPERATURE`. Returns whether it was
    possible: the head is a linear map and the held-out rows have more than one class.
    """
    targets = held_out.targets.to(model.device)
    categorical = isinstance(model.likelihood, CategoricalLikelihood)
    if not categorical or type(model.head) is not nn.Linear or bool((targets == targets[0]).all()):
        return False
    with evaluating(model):
        f = model.draw(held_out.inputs)  # [S, N, K]
    with torch.enable_grad():
        T = best_temperature(f, targets).clamp_min(LEAST_TEMPERATURE)
    for parameter in model.head.parameters():
        parameter.div_(T.to(parameter))
    return True


@torch.no_grad()
def refit_scale(model: Transformer, held_out: Dataset) -> None:
    """Set the scale b of a regression's likelihood to the one with the smallest NLL of held-out rows.

    The search is a grid over log b, from a thousandth of the targets' spread to ten times it.
    """
    likelihood = model.likelihood
    if not isinstance(likelihood, LaplaceLikelihood):
        return
    with evaluating(model):
        f = model.draw(held_out.inputs)  # [S, N, 1]
    residuals = (held_out.targets.to(f) - likelihood.mean(f)).abs().double()  # [S, N]
    grid = torch.linspace(-7, 2.3, 187, dtype=torch.float64, device=f.device)  # log b / spread
    nll = torch.stack([_mixture_nll(residuals, (t.exp() * likelihood.spread).double()) for t in grid])
    likelihood.log_b.copy_(grid[nll.argmin()])


def _mixture_nll(residuals: Tensor, b: Tensor) -> Tensor:
    """Mean NLL of a mixture of Laplace distributions with absolute residuals [S, N] and scale b, []."""
    log_p = -residuals / b - (2 * b).log()
    return -(log_p.logsumexp(0) - torch.tensor(float(len(residuals))).log()).mean()


def best_stage(point: Transformer, sparse: Transformer, held_out: Dataset) -> tuple[Transformer, Comparison]:
    """The better of the point model of stage 1 and SGPA, after a temperature or a scale for the former."""
    refit_scale(point, held_out)
    refit_scale(sparse, held_out)
    name = "ts" if fold_temperature(point, held_out) else "mle"
    models = {"sgpa": sparse, name: point}
    comparison = compare(models, held_out)
    return models[comparison.chosen], comparison


def warn_if_worse(models: Sequence[Transformer], held_out: Dataset) -> None:
    """Log a warning where the last stage is worse than the first on held-out rows."""
    scores = [validate(model, held_out)["nll"] for model in (models[0], models[-1])]
    if scores[1] > scores[0]:
        log.warning(
            "SGPA is worse than its point model on %d held-out rows (NLL %.3f against %.3f); "
            'method="auto" would return the point model',
            len(held_out), scores[1], scores[0],
        )  # fmt: skip
