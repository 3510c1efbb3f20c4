"""Selection of the epoch to keep, by the scores of held-out rows."""

from dataclasses import dataclass

from torch import Tensor

from sgpa.core.errors import check_fields
from sgpa.core.types import Classification, Prediction, Predictor
from sgpa.data import Dataset
from sgpa.evaluation import metrics
from sgpa.methods import Method


def suffix(extra: Method) -> str:
    """Of the names of the model, the scores and the weights that a training keeps for an extra selector."""
    return f"-{extra.id}"


@dataclass
class Choice:
    """The best epoch so far by a method's own predictions."""

    method: Method
    suffix: str  # of the names of its files: empty for the method that trains
    weights: dict[str, Tensor] | None = None

    @property
    def score(self) -> str:
        """The key of the best score in a run's note, and the name of the file of its weights."""
        return f"best{self.suffix}"

    @property
    def epoch(self) -> str:
        """The key of the selected epoch in a run's note."""
        return f"best_epoch{self.suffix}"

    @property
    def left_out(self) -> str:
        """The key of the errors of held-out rows (`left_out`) in a run's note."""
        return left_out_key(self.suffix)


def left_out_key(suffix: str) -> str:
    """The key of the errors of held-out rows in the note of a training, for the model with this suffix."""
    return f"left_out{suffix}"


def to_minimise(scores: dict[str, float], epoch: int, select: str) -> float:
    """The number whose smallest value selects the epoch."""
    if select == "last":
        return -float(epoch)
    value = scores.get(select)
    check_fields("optim", [("select", select, value is not None, ", ".join((*scores, "last")))])
    assert value is not None
    return -value if select == "accuracy" else value


def validate(predictor: Predictor, data: Dataset) -> dict[str, float]:
    """Validation metrics of a predictor."""
    return score(predictor.predict(data.inputs), data.targets)


def score(prediction: Prediction, targets: Tensor) -> dict[str, float]:
    """The metrics that selection may use."""
    if isinstance(prediction, Classification):
        p = prediction.probabilities.cpu()
        return {"accuracy": metrics.accuracy(p, targets.cpu()), "nll": metrics.nll(p, targets.cpu())}
    f, b = prediction.samples.cpu(), prediction.scale.cpu()
    return {
        "mae": metrics.mae(f.mean(0), targets.cpu()),
        "nll": metrics.laplace_mixture_nll(f, b, targets.cpu()),
    }
