"""Scores of probabilities with errors over test rows, and differences that are paired row by row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from sgpa.evaluation import metrics
from sgpa.evaluation.checks import Floats, Ints
from sgpa.evaluation.errors import Estimate, auroc_terms, bootstrap, resamples

TINY = metrics.TINY


@dataclass(frozen=True)
class RowScores:
    """One method on all test rows."""

    p: Floats  # [N, K]
    y: Ints  # [N]

    @staticmethod
    def of(probabilities: Tensor, labels: Tensor) -> "RowScores":
        """Tensors on the CPU as arrays."""
        return RowScores(probabilities.double().numpy(), labels.numpy())

    @property
    def right(self) -> Floats:
        """1 where the answer is right, [N]."""
        return (self.p.argmax(1) == self.y).astype(np.float64)

    @property
    def nll(self) -> Floats:
        """-log p of the label, [N]."""
        return metrics.nlls(self.p, self.y)

    def means(self) -> dict[str, Floats]:
        """Metrics that are means over rows, as their terms [N].

        `overconfidence` is confidence less accuracy.
        """
        brier = np.square(self.p - np.eye(self.p.shape[1])[self.y]).sum(1)
        return {
            "accuracy": self.right,
            "nll": self.nll,
            "brier": brier,
            "overconfidence": self.p.max(1) - self.right,
        }

    def others(self) -> dict[str, Callable[[Ints], float]]:
        """Metrics of a whole set, as functions of the rows in it."""
        p, y, wrong = self.p, self.y, 1 - self.right
        entropy = -(p * np.log(np.maximum(p, TINY))).sum(1)
        return {
            "ece": lambda rows: metrics.ece(p[rows], y[rows]),
            "aurc": lambda rows: metrics.aurc(entropy[rows], wrong[rows]),
        }


@dataclass(frozen=True)
class MethodScores:
    """The scores of one method, and what they differ from the model as it is."""

    scores: dict[str, Estimate]
    change: dict[str, Estimate]


def score_methods(rows: Mapping[str, RowScores], seed: int = 0) -> dict[str, MethodScores]:
    """Scores of all methods; the first is the model as it is. All share the same bootstrap samples."""
    first = next(iter(rows.values()))
    everything, samples = np.arange(len(first.y)), resamples(len(first.y), seed=seed)
    drawn = {
        name: {metric: bootstrap(f, samples) for metric, f in own.others().items()}
        for name, own in rows.items()
    }
    plain, plain_drawn = first.means(), next(iter(drawn.values()))
    plain_values = {metric: f(everything) for metric, f in first.others().items()}
    results = {}
    for name, own in rows.items():
        scores = {metric: Estimate.mean(terms) for metric, terms in own.means().items()}
        change = {metric: Estimate.mean(terms - plain[metric]) for metric, terms in own.means().items()}
        for metric, f in own.others().items():
            value, spread = f(everything), drawn[name][metric]
            scores[metric] = Estimate(value, float(spread.std(ddof=1)))
            difference = spread - plain_drawn[metric]
            change[metric] = Estimate(value - plain_values[metric], float(difference.std(ddof=1)))
        results[name] = MethodScores(scores, change)
    return results


def nll_differences(rows: Mapping[str, RowScores]) -> dict[str, dict[str, Estimate]]:
    """NLL of a method less that of another, for every pair."""
    return {
        a: {b: Estimate.mean(own.nll - other.nll) for b, other in rows.items() if b != a}
        for a, own in rows.items()
    }


@dataclass(frozen=True)
class DetectionScores:
    """AUROC of every detector for every perturbation, their means, and how far novelty is ahead of others."""

    by_perturbation: dict[str, dict[str, Estimate]]  # detector -> perturbation
    mean: dict[str, Estimate]
    novelty_ahead: dict[str, Estimate]  # mean AUROC of novelty, where there is one, less that of a detector


def score_detectors(
    inside: Mapping[str, Tensor], outside: Mapping[str, Mapping[str, Tensor]]
) -> DetectionScores:
    """AUROC with errors; row i of a perturbation was made from row i of the test rows.

    Args:
        inside: detector -> scores of test rows, [N].
        outside: perturbation -> detector -> scores of changed rows, [N].
    """
    terms = {
        detector: {
            name: auroc_terms(own.double().numpy(), scores[detector].double().numpy())
            for name, scores in outside.items()
        }
        for detector, own in inside.items()
    }
    means = {detector: np.mean(list(each.values()), axis=0) for detector, each in terms.items()}
    return DetectionScores(
        {d: {name: Estimate.mean(x) for name, x in each.items()} for d, each in terms.items()},
        {d: Estimate.mean(x) for d, x in means.items()},
        {
            d: Estimate.mean(means["novelty"] - x)
            for d, x in means.items()
            if d != "novelty" and "novelty" in means
        },
    )
