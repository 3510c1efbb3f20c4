"""Every method of an audit, fitted to one model."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sgpa.core.errors import SgpaError
from sgpa.experiments.audit.calibrators import LastLayerLaplace, LogitCalibrators, mixture, penalty_words
from sgpa.experiments.audit.collect import Collected, collect, dropout_logits
from sgpa.experiments.audit.cost import Cost, Predict, measure_costs
from sgpa.experiments.audit.model import Classifier
from sgpa.experiments.audit.recommendation import NAMES, PLAIN
from sgpa.experiments.audit.rows import BATCH, AuditRows, Batches, Parts
from sgpa.experiments.audit.work import COST_ROUNDS, DROPOUT_SAMPLES, GAINS, Work
from sgpa.gp.temperature import careful_temperature
from sgpa.methods.scaling import matrix_scaling, vector_scaling
from sgpa.models.modes import evaluating
from sgpa.posthoc.answers import one_pass
from sgpa.posthoc.attach import attach
from sgpa.posthoc.attached import AttachedGp
from sgpa.posthoc.calibration import check_outputs
from sgpa.posthoc.calls import logits_of, read_batch
from sgpa.posthoc.passes import dropout_modules, find_head
from sgpa.posthoc.statistics import device_of

BY_HAND = "sgpa.attach(model, modules=[...])"
FEW_ROWS, FEW_POINTS, POINTS = 100, 16, 64  # rows of statistics below which there are fewer inducing queries


@dataclass(frozen=True)
class FittedMethods:
    """All methods, and the test rows that they answer."""

    model: nn.Module
    head: nn.Module  # the linear layer that makes its outputs
    gp: AttachedGp | None  # None where SGPA was skipped
    statistics: Collected
    test: Collected
    logits: LogitCalibrators
    laplace: LastLayerLaplace
    dropout: tuple[Tensor, float] | None  # logits of test rows [S, N, K] with dropout, and their temperature
    skipped: dict[str, str]  # method -> why it could not be tried
    words: dict[str, str]  # method -> what was fitted
    burden: dict[str, dict[str, Any]]  # method -> stored_bytes, fit_seconds

    def probabilities(self) -> dict[str, Tensor]:
        """By method, those of the test rows, [N, K] each; the first is the model as it is."""
        f = self.test.logits
        p = {PLAIN: f.double().softmax(-1)} | self.logits.probabilities(f)
        p["laplace"] = self.laplace.probabilities(self.test.head, f)
        if self.gp is not None and self.test.gp is not None:
            carried = self.test.gp.carried.double()
            p["sgpa"], _ = one_pass(f.double(), carried, self.gp._ready("audit").scales)
        if self.dropout is not None:
            p["dropout"] = mixture(*self.dropout)
        return {name: p[name] for name in NAMES if name in p}

    def costs(self, parts: Parts, classifier: Classifier, work: Work) -> dict[str, Cost]:
        """Time and memory of a prediction with every method, on one batch.

        Calibrators of logits come after the plain pass, and MC dropout takes ten times what one pass takes.
        """
        some = parts.test.part(torch.arange(min(len(parts.test), BATCH)))
        batches = list(Batches(some, classifier.encode))
        device = str(device_of(self.model))
        work.note = "cost"
        costs = measure_costs(
            self._predictors(batches[0]),
            batches,
            device,
            lambda: work.add(work.cost // COST_ROUNDS),
            COST_ROUNDS,
        )
        for name in self.logits.each():
            costs[name] = Cost(1 + costs[name].time, costs[PLAIN].memory)
        if "dropout" in costs:
            costs["dropout"] = Cost(DROPOUT_SAMPLES * costs["dropout"].time, costs["dropout"].memory)
        return costs

    def _predictors(self, batch: Any) -> dict[str, Predict]:
        model, head, device = self.model, self.head, device_of(self.model)

        @torch.no_grad()
        def logits(batch: Any) -> Tensor:
            with evaluating(model):
                return logits_of(read_batch(batch, device)(model), model)

        def laplace(batch: Any) -> Tensor:
            kept: list[Tensor] = []
            hook = head.register_forward_hook(lambda _, args, __: kept.append(args[0]))
            try:
                f = logits(batch)
            finally:
                hook.remove()
            return self.laplace.probabilities(
                kept[-1].reshape(-1, kept[-1].shape[-1])[: len(f)].cpu(), f.cpu()
            )

        f = logits(batch)
        predictors: dict[str, Predict] = {PLAIN: lambda batch: logits(batch).softmax(-1)}
        predictors |= {name: partial(_of_logits, own, f) for name, own in self.logits.each().items()}
        predictors["laplace"] = laplace
        if self.gp is not None:
            predictors["sgpa"] = self.gp.predict
        if self.dropout is not None:
            predictors["dropout"] = lambda batch: dropout_logits(model, [batch], 1)
        return predictors


def _of_logits(calibrate: Callable[[Tensor], Tensor], f: Tensor, batch: Any) -> Tensor:
    """What a calibrator makes of logits that are there already."""
    del batch
    return calibrate(f)


def fit_methods(classifier: Classifier, parts: Parts, work: Work, seed: int) -> FittedMethods:
    """Fit everything; test rows pass through the model, but their labels are not used."""
    model, encode = classifier.model, classifier.encode
    points = POINTS if len(parts.statistics) >= FEW_ROWS else FEW_POINTS
    seconds: dict[str, float] = {}
    skipped: dict[str, str] = {}
    with timed("sgpa", seconds):
        gp = _attached(classifier, parts, work, points, skipped)
    work.note = "the model as it is"
    head = find_head(model, read_batch(next(iter(Batches(parts.test, encode))), device_of(model)))
    statistics, calibration, test = (
        collect(model, head, gp, Batches(part, encode, work.add))
        for part in (parts.statistics, parts.calibration, parts.test)
    )
    assert calibration.targets is not None
    check_outputs(calibration.logits, calibration.targets)
    f, y = calibration.logits, calibration.targets
    if statistics.targets is not None:
        f, y = torch.cat([statistics.logits, f]), torch.cat([statistics.targets, y])
    with timed("temperature", seconds):
        T = float(careful_temperature(f.unsqueeze(0), y))
    with timed("vector", seconds):
        vector = vector_scaling(f, y)
    with timed("matrix", seconds):
        matrix = matrix_scaling(f, y, seed=seed)
    logits = LogitCalibrators(T, vector, matrix)
    with timed("laplace", seconds):
        laplace = LastLayerLaplace.fit(statistics, calibration)
    dropout = None
    if dropout_modules(model):
        with timed("dropout", seconds):
            fit_draws = _dropout_draws(classifier, parts, work, seed)
            T_dropout = float(careful_temperature(fit_draws, y))
        dropout = _draws(classifier, parts.test, work, seed + 2), T_dropout
    else:
        skipped["dropout"] = "the model has no dropout layers"
    K = f.shape[1]
    stored = {PLAIN: 0, "temperature": 8, "vector": 16 * K, "matrix": 8 * K * (K + 1), "dropout": 8}
    stored["laplace"] = 8 * laplace.numbers
    words = {
        "temperature": f"T = {logits.temperature:.3g}",
        "matrix": penalty_words(logits.matrix),
        "laplace": f"prior precision {laplace.delta:.2g}",
    }
    if gp is not None:
        adapter = gp._ready("audit")
        stored["sgpa"] = sum(x.numel() * x.element_size() for x in adapter.tensors().values())
        tau = math.sqrt(float(adapter.scales.data))
        sigma = ", ".join(f"{x:.2g}" for x in adapter.scales.layers.sqrt().tolist())
        words["sgpa"] = f"τ = {tau:.3g}, σ by layer {sigma}; {points} inducing queries a head"
    if dropout is not None:
        words["dropout"] = f"{DROPOUT_SAMPLES} passes, T = {dropout[1]:.3g}"
    burden = {name: {"stored_bytes": size, "fit_seconds": seconds.get(name)} for name, size in stored.items()}
    return FittedMethods(model, head, gp, statistics, test, logits, laplace, dropout, skipped, words, burden)


def _attached(
    classifier: Classifier, parts: Parts, work: Work, points: int, skipped: dict[str, str]
) -> AttachedGp | None:
    """The model with fitted and calibrated GPs; None where it cannot have them, and `skipped` says why."""
    work.note, before = "SGPA", work.done
    try:
        gp = attach(classifier.model, num_inducing=points)
        gp.fit(Batches(parts.statistics, classifier.encode, work.add))
        work.add(GAINS)
        # changed rows would teach novelty what the audit tests it on
        return gp.calibrate(Batches(parts.calibration, classifier.encode, work.add), unfamiliar={})
    except SgpaError as error:  # those of the model itself come again in its own pass
        skipped["sgpa"] = str(error).removeprefix("attach: ").split("; ")[0]
        if "modules=[" in str(error):
            skipped["sgpa"] += f"; if the model has attention, name the linear maps of its queries: {BY_HAND}"
        work.add(before + len(parts.statistics) + len(parts.calibration) + GAINS - work.done)
        return None


def _dropout_draws(classifier: Classifier, parts: Parts, work: Work, seed: int) -> Tensor:
    """Logits of the rows to fit with dropout on, [S, N, K]."""
    labelled = [part for part in (parts.statistics, parts.calibration) if part.labels is not None]
    return torch.cat([_draws(classifier, part, work, seed + i) for i, part in enumerate(labelled)], 1)


def _draws(classifier: Classifier, rows: AuditRows, work: Work, seed: int) -> Tensor:
    work.note = "MC dropout"
    batches = Batches(rows, classifier.encode, lambda count: work.add(DROPOUT_SAMPLES * count))
    return dropout_logits(classifier.model, batches, DROPOUT_SAMPLES, seed)


@contextmanager
def timed(name: str, seconds: dict[str, float]) -> Iterator[None]:
    """Keep how long the block takes."""
    started = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - started
