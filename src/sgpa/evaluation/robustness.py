"""CIFAR-C: metrics of every corruption type and intensity, averaged over types as the paper's tables are."""

from collections.abc import Callable, Sequence

import numpy as np
from torch import Tensor

from sgpa.core.types import Predictor
from sgpa.data import Dataset, corruptions
from sgpa.data.corruptions.on_disk import SEED, CorruptedFiles
from sgpa.evaluation.evaluate import Keep, Results, Subject, at_once, evaluate


def evaluate_corruptions(
    predictor: Predictor,
    subject: Subject,
    images: Tensor,
    labels: Tensor,
    *,
    types: Sequence[str] = corruptions.NAMES,
    severities: Sequence[int] = corruptions.SEVERITIES,
    ready_made: CorruptedFiles | None = None,
    tell: Callable[[str, int, int], None] = lambda *_: None,
    keep: Keep = at_once,
) -> Results:
    """One record per metric, type and intensity, and their mean over types.

    `images` [N, 3, 32, 32] are the clean test images, or the first of them. They are corrupted here, or read
    where they are ready-made; the shift's name says whether they are the published ones, `cifar10-c:3`, or
    not, `cifar10-c-regenerated:3`. Single types are `cifar10-c-regenerated/fog:3`.
    """
    published = ready_made is not None and not ready_made.regenerated
    family = f"{subject.dataset}-c" + ("" if published else f"-{corruptions.REGENERATED}")
    results = Results()
    total = len(types) * len(severities)
    for i, severity in enumerate(severities):
        per_type: dict[str, list[float]] = {}
        for j, name in enumerate(types):
            tell(f"{name} {severity}", i * len(types) + j, total)

            def measure(name: str = name, severity: int = severity) -> Results:
                shifted = _corrupted(images, name, severity, ready_made)
                return evaluate(predictor, subject, Dataset(shifted, labels))

            found = keep(f"{family}/{name}:{severity}", measure)
            values = {record["metric"]: record["value"] for record in found.records}
            results.add(subject, "robustness", f"{family}/{name}:{severity}", values)
            for metric, value in values.items():
                per_type.setdefault(metric, []).append(value)
        means = {metric: float(np.mean(values)) for metric, values in per_type.items()}
        results.add(subject, "robustness", f"{family}:{severity}", means)
    tell("done", total, total)
    return results


def _corrupted(images: Tensor, name: str, severity: int, ready_made: CorruptedFiles | None) -> Tensor:
    if ready_made is None or not ready_made.has(name):
        return corruptions.corrupt(images, name, severity, SEED)
    return ready_made.load(name, severity)[: len(images)].to(images.device)
