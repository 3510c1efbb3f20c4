"""`sgpa.audit`: how calibrated somebody's classifier is, and what would change it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sgpa.core.arguments import checked
from sgpa.core.devices import check_device
from sgpa.core.errors import check_fields
from sgpa.core.noise import check_seed
from sgpa.core.progress import OnProgress
from sgpa.core.provenance import provenance
from sgpa.evaluation.calibration import reliability
from sgpa.experiments.audit.checks import check_data, read_kind
from sgpa.experiments.audit.collect import collect
from sgpa.experiments.audit.detectors import detector_scores
from sgpa.experiments.audit.methods import FittedMethods, fit_methods
from sgpa.experiments.audit.model import Classifier, open_classifier
from sgpa.experiments.audit.perturb import perturbations
from sgpa.experiments.audit.recommendation import DETECTORS, NAMES, PLAIN, recommend
from sgpa.experiments.audit.rows import MIN_ROWS, AuditRows, Batches, divide, read_rows, read_training
from sgpa.experiments.audit.scores import RowScores, nll_differences, score_detectors, score_methods
from sgpa.experiments.audit.work import Work

MAX_DETECTION = 500  # test rows that are perturbed
MAX_ROWS = 2000

Announce = Callable[[str], None]


@dataclass(frozen=True)
class Audit:
    """The numbers of an audit, plain data that JSON can hold; estimates are {"value", "error"}."""

    model: dict[str, Any]  # folder, type, classes, parameters
    data: dict[str, Any]  # path, rows of every part
    methods: dict[str, dict[str, Any]]  # id -> name, scores, change, cost, fitted
    skipped: dict[str, str]  # name of a method that could not be tried -> why
    nll_differences: dict[str, dict[str, Any]]  # NLL of the first method less that of the second
    reliability: dict[str, dict[str, Any]]
    detection: dict[str, Any]  # rows, names, by_perturbation, mean, novelty_ahead
    settings: dict[str, Any]
    run: dict[str, Any]  # versions, hardware, commit, date, seconds

    @property
    def recommendation(self) -> list[str]:
        """Advice in sentences."""
        return recommend(asdict(self))

    def as_dict(self) -> dict[str, Any]:
        """All of it, with the recommendation."""
        return {"schema": 1, "recommendation": self.recommendation} | asdict(self)


@checked
def audit(
    model: str | Path,
    data: str | Path,
    *,
    train: str | Path | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    max_rows: int = MAX_ROWS,
    seed: int = 0,
    device: str = "cpu",
    on_progress: OnProgress | None = None,
    announce: Announce | None = None,
) -> Audit:
    """Measure the calibration of a trained classifier, and what calibrators and an attached GP would change.

    Half of the rows test. On the other half temperature, vector and structured matrix scaling, last-layer
    Laplace, MC dropout and SGPA are fitted; SGPA is left out where it cannot be attached. The model is not
    changed, and nothing is downloaded.

    Args:
        model: a folder that `save_pretrained` of Hugging Face transformers wrote: a classifier of texts with
            its tokenizer, or of images with its image processor.
        data: rows that the model was not trained on, with labels: a CSV, TSV or Parquet file of texts, or a
            folder with one sub-folder of images per class. Labels are the model's class names or numbers.
        train: rows that the model was trained on, for statistics; labels are not read.
        text_column: column of texts; guessed by default.
        label_column: column of labels; guessed by default.
        max_rows: rows to use; larger data sets are subsampled by class.
        seed: of the split, of the perturbations and of dropout.
        device: cpu or cuda.
        on_progress: called with what is done, done, in all, and a note.
        announce: called once with a sentence that says how long it will take.

    Returns:
        Numbers with errors over test rows, and a `recommendation`.

    Example:
        >>> result = sgpa.audit("my-model", "reviews.csv")  # doctest: +SKIP
        >>> print(*result.recommendation)  # doctest: +SKIP
    """
    started = time.perf_counter()
    model, data = Path(model), Path(data)
    kind = read_kind(model)
    for path in filter(None, (data, None if train is None else Path(train))):
        check_data(kind, path)
    check_fields("audit", [("max_rows", max_rows, max_rows >= MIN_ROWS, f"{MIN_ROWS} or more")])
    check_seed(seed)
    check_device(device)
    classifier = open_classifier(model, device)
    columns = {"text_column": text_column, "label_column": label_column}
    rows = read_rows(classifier, data, **columns, max_rows=max_rows, seed=seed)
    training = None if train is None else read_training(classifier, Path(train), text_column, seed)
    parts = divide(rows, training, seed)
    detected = min(len(parts.test), MAX_DETECTION)
    work = Work(classifier, parts, detected * len(perturbations(rows.items)), on_progress)
    if announce is not None:
        announce(
            f"{len(rows)} rows of {data}: {parts.fit} to fit, {len(parts.test)} to test; "
            f"takes about {work.estimate()}"
        )
    fitted = fit_methods(classifier, parts, work, seed)
    methods, scored = _methods(fitted, seed)
    costs = fitted.costs(parts, classifier, work)
    for name, cost in costs.items():
        methods[name]["cost"] = asdict(cost) | fitted.burden[name]
    detection = _detection(classifier, fitted, parts.test, detected, work, seed)
    facts = {"path": str(data), "rows": len(rows), "test": len(parts.test), "fit": parts.fit}
    facts |= {"statistics": len(parts.statistics), "calibration": len(parts.calibration)}
    facts |= {"train": None if train is None else str(train), "kind": kind}
    return Audit(
        model={
            "folder": str(model),
            "type": type(classifier.model).__name__,
            "classes": list(classifier.classes),
            "parameters": classifier.parameters,
        },
        data=facts,
        methods=methods,
        skipped={NAMES[name]: why for name, why in fitted.skipped.items()},
        nll_differences={
            a: {b: asdict(x) for b, x in others.items()} for a, others in nll_differences(scored).items()
        },
        reliability={name: reliability(own.p, own.y).as_dict() for name, own in scored.items()},
        detection=detection,
        settings={"seed": seed, "device": device, "max_rows": max_rows},
        run=provenance() | {"seconds": time.perf_counter() - started},
    )


def _methods(fitted: FittedMethods, seed: int) -> tuple[dict[str, dict[str, Any]], dict[str, RowScores]]:
    """Scores and changes of every method, and the rows that they come from."""
    assert fitted.test.targets is not None
    scored = {name: RowScores.of(p, fitted.test.targets) for name, p in fitted.probabilities().items()}
    methods = {}
    for name, own in score_methods(scored, seed).items():
        methods[name] = {
            "name": NAMES[name],
            "scores": {metric: asdict(x) for metric, x in own.scores.items()},
            "change": {} if name == PLAIN else {metric: asdict(x) for metric, x in own.change.items()},
            "fitted": fitted.words.get(name, ""),
        }
    return methods, scored


def _detection(
    classifier: Classifier, fitted: FittedMethods, test: AuditRows, count: int, work: Work, seed: int
) -> dict[str, Any]:
    """AUROC of every detector for every perturbation of the first `count` test rows."""
    some = test.part(torch.arange(count))
    inside = {name: x[:count] for name, x in detector_scores(fitted.statistics, fitted.test).items()}
    outside: dict[str, Mapping[str, Tensor]] = {}
    for name, change in perturbations(some.items).items():
        work.note = name
        changed = Batches(AuditRows(change(some.items, seed)), classifier.encode, work.add)
        shown = collect(fitted.model, fitted.head, fitted.gp, changed)
        outside[name] = detector_scores(fitted.statistics, shown)
    names = {name: DETECTORS[name] for name in inside}
    return {"rows": count, "names": names} | asdict(score_detectors(inside, outside))
