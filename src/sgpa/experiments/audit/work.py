"""How much an audit has to do, how long that takes, and how far it is."""

import time

import torch

from sgpa.core.progress import OnProgress
from sgpa.experiments.audit.model import Classifier
from sgpa.experiments.audit.rows import BATCH, Batches, Parts
from sgpa.posthoc.calls import logits_of, read_batch
from sgpa.posthoc.passes import dropout_modules
from sgpa.posthoc.statistics import device_of
from sgpa.training.fit_display import in_words

DROPOUT_SAMPLES = 10
GAINS = 700  # rows whose passes take as long as the derivatives and inducing points of `fit`
COST_ROUNDS = 3
COST_PASSES = 6 * COST_ROUNDS  # of one batch that costs are measured on


class Work:
    """Rows that pass through the model, counted: done and in all."""

    def __init__(
        self,
        classifier: Classifier,
        parts: Parts,
        perturbed: int,
        on_progress: OnProgress | None,
    ) -> None:
        statistics, fit, test = len(parts.statistics), parts.fit, len(parts.test)
        samples = DROPOUT_SAMPLES if dropout_modules(classifier.model) else 0
        self.cost = COST_PASSES * min(test, BATCH)
        once = 2 * statistics + 2 * len(parts.calibration) + test + perturbed
        self.total = once + GAINS + samples * (fit + test) + self.cost
        self.done, self.note = 0, ""
        self._classifier, self._parts, self._on_progress = classifier, parts, on_progress

    def add(self, rows: int) -> None:
        """So many rows have passed."""
        self.done = min(self.done + rows, self.total)
        if self._on_progress is not None:
            self._on_progress("audit", self.done, self.total, self.note)

    @torch.no_grad()
    def estimate(self) -> str:
        """The time for all rows in words, from one batch."""
        model = self._classifier.model
        batch = next(iter(Batches(self._parts.test, self._classifier.encode)))
        call = read_batch(batch, device_of(model))
        seconds = []
        for _ in range(3):
            started = time.perf_counter()
            logits_of(call(model), model).cpu()
            seconds.append(time.perf_counter() - started)
        rows = len(batch["labels"])
        return in_words(min(seconds) / rows * self.total)
