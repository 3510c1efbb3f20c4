"""CIFAR-C: metrics of every corruption type and intensity, averaged over types as the paper's tables are."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from sgpa.data import Dataset, corruptions
from sgpa.evaluation import Results, Subject, evaluate
from sgpa.methods import Predictor


def evaluate_corruptions(
    predictor: Predictor,
    subject: Subject,
    images: Tensor,
    labels: Tensor,
    *,
    types: Sequence[str] = corruptions.NAMES,
    severities: Sequence[int] = corruptions.SEVERITIES,
    ready_made: Path | None = None,
    seed: int = 0,
    tell: Callable[[str, int, int], None] = lambda *_: None,
) -> Results:
    """One record per metric, type and intensity, and their mean over types.

    Corruptions are generated on the fly from the clean test images [N, 3, 32, 32], which the shift's name
    says: `cifar10-c-regenerated:3`. With a directory of ready-made `.npy` files those are used instead and
    the shift is `cifar10-c:3`. Single types are `cifar10-c-regenerated/fog:3`.
    """
    family = f"{subject.dataset}-c" + ("" if ready_made else f"-{corruptions.REGENERATED}")
    results = Results()
    total = len(types) * len(severities)
    for i, severity in enumerate(severities):
        per_type: dict[str, list[float]] = {}
        for j, name in enumerate(types):
            tell(f"{name} {severity}", i * len(types) + j, total)
            shifted = _corrupted(images, name, severity, ready_made, seed)
            found = evaluate(predictor, subject, Dataset(shifted, labels)).records
            values = {record["metric"]: record["value"] for record in found}
            results.add(subject, "robustness", f"{family}/{name}:{severity}", values)
            for metric, value in values.items():
                per_type.setdefault(metric, []).append(value)
        means = {metric: float(np.mean(values)) for metric, values in per_type.items()}
        results.add(subject, "robustness", f"{family}:{severity}", means)
    tell("done", total, total)
    return results


def _corrupted(images: Tensor, name: str, severity: int, ready_made: Path | None, seed: int) -> Tensor:
    if ready_made is None:
        return corruptions.corrupt(images, name, severity, seed)
    return corruptions.load(ready_made, name, severity, len(images)).to(images.device)
