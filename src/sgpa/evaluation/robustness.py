"""CIFAR-C: metrics of every corruption type and intensity, averaged over types as the paper's tables are."""

from collections.abc import Callable, Sequence

import numpy as np
from torch import Tensor

from sgpa.core.types import Predictor
from sgpa.data import Dataset, corruptions
from sgpa.data.corruptions.on_disk import SEED, CorruptedFiles
from sgpa.evaluation.evaluate import evaluate
from sgpa.evaluation.results import ResultCache, Results, Subject, no_cache


def evaluate_corruptions(
    predictor: Predictor,
    subject: Subject,
    images: Tensor,
    labels: Tensor,
    *,
    types: Sequence[str] = corruptions.NAMES,
    severities: Sequence[int] = corruptions.SEVERITIES,
    corrupted_files: CorruptedFiles | None = None,
    on_progress: Callable[[str, int, int], None] = lambda *_: None,
    cache: ResultCache = no_cache,
) -> Results:
    """One record per metric, type and intensity, and their means over types.

    Args:
        predictor: predicts classes.
        subject: the columns of all records.
        images: clean test images [N, 3, 32, 32], or the first of them.
        labels: their classes [N].
        types: corruption types.
        severities: intensities, 1 to 5.
        corrupted_files: corrupted images on disk; those that are missing are made here.
        on_progress: called with what is evaluated, how many sets are done, and how many there are.
        cache: returns the results of sets that were evaluated before.

    Returns:
        Records whose shift is `cifar10-c:3` for the published images, `cifar10-c-regenerated:3` for images
        made here, and `cifar10-c-regenerated/fog:3` for a single type.
    """
    published = corrupted_files is not None and not corrupted_files.regenerated
    family = f"{subject.dataset}-c" + ("" if published else f"-{corruptions.REGENERATED}")
    results = Results()
    total = len(types) * len(severities)
    for i, severity in enumerate(severities):
        per_type: dict[str, list[float]] = {}
        for j, name in enumerate(types):
            on_progress(f"{name} {severity}", i * len(types) + j, total)

            def measure(name: str = name, severity: int = severity) -> Results:
                shifted = _corrupted(images, name, severity, corrupted_files)
                return evaluate(predictor, subject, Dataset(shifted, labels))

            part = cache(f"{family}/{name}:{severity}", measure)
            values = {record["metric"]: record["value"] for record in part.records}
            results.add(subject, "robustness", f"{family}/{name}:{severity}", values)
            for metric, value in values.items():
                per_type.setdefault(metric, []).append(value)
        complete = {metric: values for metric, values in per_type.items() if len(values) == len(types)}
        means = {metric: float(np.mean(values)) for metric, values in complete.items()}
        results.add(subject, "robustness", f"{family}:{severity}", means)
    on_progress("done", total, total)
    return results


def _corrupted(images: Tensor, name: str, severity: int, corrupted_files: CorruptedFiles | None) -> Tensor:
    if corrupted_files is None or not corrupted_files.has(name):
        return corruptions.corrupt(images, name, severity, SEED)
    return corrupted_files.load(name, severity)[: len(images)].to(images.device)
