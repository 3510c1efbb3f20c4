"""Scores of an attached GP beside calibrators of logits and detectors of unfamiliar inputs."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import sgpa
from sgpa.evaluation import metrics
from sgpa.inference.novelty import ClassDistances
from sgpa.methods.scaling import vector_scaling
from sgpa.methods.temperature import best_temperature
from sgpa.posthoc.collect import Collected, collect, dropout_logits
from sgpa.posthoc.detectors import NEIGHBOURS, detector_scores

NAMES = {"knn": f"kNN({NEIGHBOURS}), head", "mahalanobis": "Mahalanobis, head"}
NAMES |= {"mahalanobis_layers": "Mahalanobis, mean of layers"}


def classification_scores(p: Tensor, y: Tensor) -> dict[str, float]:
    """Accuracy, MCC for two classes, NLL and ECE."""
    named = {"accuracy": metrics.accuracy, "nll": metrics.nll, "ece": metrics.ece}
    if p.shape[1] == 2:
        named["mcc"] = metrics.matthews
    return {name: float(metric(p.double().numpy(), y.numpy())) for name, metric in named.items()}


def all_detectors(train: Collected, labels: Tensor, rows: Collected) -> dict[str, Tensor]:
    """Scores of all detectors and of single layers, high for unfamiliar rows, [N] each."""
    scores = {NAMES.get(name, name): score for name, score in detector_scores(train, rows).items()}
    for i in range(train.layers.shape[1]):
        fitted = ClassDistances.fit(train.layers[:, i], labels)
        scores[f"Mahalanobis, layer {i + 2}"] = fitted.to_class(rows.layers[:, i])
    return scores | {f"GP share, layer {i + 1}": rows.shares[:, i] for i in range(rows.shares.shape[1])}


def detection(inside: Mapping[str, Tensor], outside: Mapping[str, Tensor]) -> dict[str, float]:
    """AUROC of every score."""
    found = {}
    for name, own in inside.items():
        both = torch.cat([own, outside[name]]).double().numpy()
        is_ood = torch.cat([torch.zeros(len(own)), torch.ones(len(outside[name]))]).numpy()
        found[name] = float(metrics.auroc(both, is_ood))
    return found


def calibrators(
    held_out: Collected, rows: Collected, dropped: tuple[Tensor, Tensor] | None
) -> dict[str, Tensor]:
    """Probabilities of the usual calibrators, each fitted on held-out rows; `dropped` as `dropout_logits`."""
    assert held_out.targets is not None
    f, y = held_out.logits, held_out.targets
    made = {
        "MLE": rows.logits.double().softmax(-1),
        "temperature": (rows.logits.double() / best_temperature(f.unsqueeze(0), y)).softmax(-1),
        "vector scaling": vector_scaling(f, y).logits(rows.logits).softmax(-1),
    }
    if dropped is not None:
        held, own = dropped
        made["MC dropout + temperature"] = (own.double() / best_temperature(held, y)).softmax(-1).mean(0)
    return made


def measure(
    model: nn.Module,
    train: Sequence[Any],
    held_out: Sequence[Any],
    tests: Mapping[str, Sequence[Any]],
    strangers: Mapping[str, Sequence[Any]],
    *,
    samples: int = 10,
    **options: Any,
) -> dict[str, Any]:
    """All scores of one model: calibration on every test set, detection against the first of them.

    Args:
        model: a trained classifier.
        train: batches of training rows.
        held_out: batches with labels.
        tests: batches with labels; sets after the first are also scored as unfamiliar.
        strangers: batches of other inputs.
        samples: of the sampled prediction; 0 leaves it out.
        options: of `sgpa.attach`.
    """
    started = time.perf_counter()
    gp = sgpa.attach(model, **options).fit(train)
    fitted = time.perf_counter()
    gp.calibrate(held_out)
    found: dict[str, Any] = {"fit_s": fitted - started, "calibrate_s": time.perf_counter() - fitted}
    train_rows, held_rows = collect(gp, train), collect(gp, held_out)
    labels, dropped = train_rows.logits.argmax(-1), dropout_logits(model, held_out)
    inside: dict[str, Tensor] | None = None
    for name, batches in tests.items():
        rows = collect(gp, batches)
        assert rows.targets is not None
        made = calibrators(held_rows, rows, (dropped, dropout_logits(model, batches)))
        for kind, count in {"GP": 0, f"GP, {samples} samples": samples}.items():
            answers = [gp.predict(batch, samples=count) for batch in batches]
            made[kind] = torch.cat([answer.probabilities for answer in answers]).cpu()
        found[name] = {method: classification_scores(p, rows.targets) for method, p in made.items()}
        detectors = all_detectors(train_rows, labels, rows)
        if inside is None:
            inside = detectors
        else:
            found[f"AUROC of {name}"] = detection(inside, detectors)
    assert inside is not None
    for name, batches in strangers.items():
        rows = collect(gp, batches)
        found[f"AUROC of {name}"] = detection(inside, all_detectors(train_rows, labels, rows))
    scales = gp._ready("measure").scales
    return found | {"tau2": float(scales.data), "sigma2": scales.layers.tolist()}
