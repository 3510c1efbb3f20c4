"""Scores of an attached GP beside calibrators of logits and detectors of unfamiliar inputs."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import sgpa
from sgpa.evaluation import metrics
from sgpa.inference.novelty import ClassDistances
from sgpa.methods.temperature import best_temperature
from sgpa.models.modes import evaluating
from sgpa.posthoc.attached import AttachedGp
from sgpa.posthoc.calls import logits_of, read_batch
from sgpa.posthoc.rows import as_evidence, read_rows
from sgpa.posthoc.statistics import device_of

NEIGHBOURS = 20


@dataclass(frozen=True)
class Collected:
    """All rows of a data set, on the CPU."""

    logits: Tensor  # [N, C]
    carried: Tensor  # [N, L]
    shares: Tensor  # [N, L]
    layers: Tensor  # [N, L - 1, E]
    head: Tensor  # [N, E]
    novelty: Tensor  # the score whose percentile is the novelty    [N]
    targets: Tensor | None = None  # [N]


@torch.no_grad()
def collect(gp: AttachedGp, batches: Iterable[Any]) -> Collected:
    """What the model and its GPs show of every row."""
    model, adapter = gp._attached("collect"), gp._ready("collect")
    columns: list[list[Tensor]] = []
    targets: list[Tensor] = []
    for batch in batches:
        call = read_batch(batch, device_of(model))
        rows = read_rows(gp._observe(model, call), adapter.on(device_of(model)))
        flat = rows.flat(None)
        columns.append([*flat, adapter.novelty.score(as_evidence(*flat[2:], flat[0]))])
        if call.targets is not None:
            targets.append(call.targets.cpu())
    joined = [torch.cat([row[i].cpu() for row in columns]) for i in range(6)]
    return Collected(*joined, torch.cat(targets) if targets else None)


@torch.no_grad()
def dropout_logits(model: nn.Module, batches: Iterable[Any], samples: int = 10, seed: int = 0) -> Tensor:
    """Logits of passes with dropout on, [S, N, C] on the CPU."""
    torch.manual_seed(seed)
    parts = []
    with evaluating(model):
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.training = True
        for batch in batches:
            call = read_batch(batch, device_of(model))
            parts.append(torch.stack([logits_of(call(model), model) for _ in range(samples)]).cpu())
    return torch.cat(parts, 1)


def vector_scaling(f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and offset of every class with the lowest NLL (Guo et al. 2017), [C] each."""
    scale, offset = torch.ones(f.shape[1], dtype=torch.float64), torch.zeros(f.shape[1], dtype=torch.float64)
    parameters = [scale.requires_grad_(), offset.requires_grad_()]
    search = torch.optim.LBFGS(parameters, max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> float:
        search.zero_grad()
        loss = cross_entropy(f.double() * scale + offset, y)
        loss.backward()
        return loss.item()

    search.step(closure)
    return scale.detach(), offset.detach()


def classification_scores(p: Tensor, y: Tensor) -> dict[str, float]:
    """Accuracy, MCC for two classes, NLL and ECE."""
    named = {"accuracy": metrics.accuracy, "nll": metrics.nll, "ece": metrics.ece}
    if p.shape[1] == 2:
        named["mcc"] = metrics.matthews
    return {name: float(metric(p.double().numpy(), y.numpy())) for name, metric in named.items()}


def detector_scores(train: Collected, labels: Tensor, rows: Collected) -> dict[str, Tensor]:
    """Scores of other detectors, high for unfamiliar rows, [N] each."""
    p = rows.logits.double().softmax(-1)
    unit = torch.nn.functional.normalize
    distances = torch.cdist(unit(rows.head.double()), unit(train.head.double()))
    scores = {
        "entropy": torch.special.entr(p).sum(-1),
        "energy": -rows.logits.double().logsumexp(-1),
        f"kNN({NEIGHBOURS}), head": distances.kthvalue(min(NEIGHBOURS, len(train.head)), -1).values,
        "Mahalanobis, head": ClassDistances.fit(train.head, labels).to_class(rows.head),
    }
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
    scale, offset = vector_scaling(f, y)
    made = {
        "MLE": rows.logits.double().softmax(-1),
        "temperature": (rows.logits.double() / best_temperature(f.unsqueeze(0), y)).softmax(-1),
        "vector scaling": (rows.logits.double() * scale + offset).softmax(-1),
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
        detectors = {"novelty": rows.novelty} | detector_scores(train_rows, labels, rows)
        if inside is None:
            inside = detectors
        else:
            found[f"AUROC of {name}"] = detection(inside, detectors)
    assert inside is not None
    for name, batches in strangers.items():
        rows = collect(gp, batches)
        other = {"novelty": rows.novelty} | detector_scores(train_rows, labels, rows)
        found[f"AUROC of {name}"] = detection(inside, other)
    scales = gp._ready("measure").scales
    return found | {"tau2": float(scales.data), "sigma2": scales.layers.tolist()}
