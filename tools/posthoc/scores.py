"""Scores of probabilities, and of detectors of unfamiliar rows."""

from collections.abc import Mapping

import torch
from torch import Tensor

from sgpa.evaluation import metrics


def classification_scores(p: Tensor, y: Tensor) -> dict[str, float]:
    """Accuracy, MCC in percent for two classes, NLL and ECE."""
    named = {"accuracy": metrics.accuracy, "nll": metrics.nll, "ece": metrics.ece}
    if p.shape[1] == 2:
        named["mcc"] = metrics.matthews
    return {name: float(metric(p.double().numpy(), y.numpy())) for name, metric in named.items()}


def detection(inside: Mapping[str, Tensor], outside: Mapping[str, Tensor]) -> dict[str, float]:
    """AUROC of every score."""
    aurocs = {}
    for name, own in inside.items():
        both = torch.cat([own, outside[name]]).double().numpy()
        is_ood = torch.cat([torch.zeros(len(own)), torch.ones(len(outside[name]))]).numpy()
        aurocs[name] = float(metrics.auroc(both, is_ood))
    return aurocs
