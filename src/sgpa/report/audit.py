"""The page of an audit: one self-contained HTML file from the numbers of `sgpa audit`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sgpa.core.files import write_json, write_text
from sgpa.evaluation.metrics import MCE_ANSWERS, Reliability
from sgpa.report.figures.bars import metric_bars
from sgpa.report.figures.curves import numbers
from sgpa.report.figures.multiples import reliability_diagrams
from sgpa.report.figures.style import LOOKS, OTHERS, svg_bytes
from sgpa.report.figures.svg import inline
from sgpa.report.names import metric
from sgpa.report.page import Part, page_html
from sgpa.report.render import Grid
from sgpa.report.sections.blocks import Plot, Section, Titled
from sgpa.report.sections.glossary import glossary
from sgpa.report.tables import Cell, CellKey, Column, Table

PAGE, NUMBERS = "audit.html", "audit.json"
PLAIN = "plain"
METHODS = {  # in the order of the tables
    PLAIN: LOOKS["mle"],
    "temperature": LOOKS["ts"],
    "vector": LOOKS["vs"],
    "matrix": LOOKS["ms"],
    "laplace": LOOKS["kflla"],
    "sgpa": LOOKS["sgpa"],
    "dropout": LOOKS["mcd"],
}
DETECTORS = {
    "entropy": LOOKS["mle"],
    "energy": LOOKS["ts"],
    "mahalanobis": OTHERS[1],
    "mahalanobis_layers": OTHERS[2],
    "knn": LOOKS["kflla"],
    "novelty": LOOKS["sgpa"],
}
SHOWN = ("accuracy", "nll", "ece", "brier", "aurc")
CHANGED = ("nll", "ece", "accuracy")
COSTS = {
    "time": "relative_time",
    "memory": "relative_memory",
    "stored_bytes": "stored_bytes",
    "fit_seconds": "fit_seconds",
}
WORDS = (
    ("Temperature scaling", "All logits are divided by one number. The answers do not change."),
    ("Vector scaling", "A factor and an offset for every class. Answers can change."),
    (
        "Structured matrix scaling",
        "A full matrix and offsets, shrunk towards a temperature as far as cross-validation on the rows to "
        "fit says. Answers can change.",
    ),
    (
        "Last-layer Laplace",
        "A Gaussian over the weights of the last layer. Logits are divided by a number that grows with the "
        "variance of each class.",
    ),
    ("MC dropout", "The mean of ten passes with dropout layers on, after a temperature. Answers can change."),
    (
        "SGPA, attached",
        "Gaussian processes on the attention heads (sgpa.attach): logits are divided by a number that grows "
        "where attention asks what is unfamiliar. The answers do not change.",
    ),
    (
        "AUROC",
        "The probability that a perturbed row has a higher score than a test row: 0.5 is chance level, 1 "
        "perfect.",
    ),
    ("Energy", "−log Σ exp of the logits: low logits mean unfamiliar."),
    (
        "Mahalanobis distance",
        "Distance to the rows of the statistics in units of their spread: at the output to the nearest class "
        "that the model predicts, in all layers to all rows together.",
    ),
    ("20th neighbour", "Distance to the 20th nearest row of the statistics, where the last layer reads."),
    (
        "SGPA's novelty",
        "The variance that the Gaussian processes leave, distances in inner layers, distance at the output "
        "and energy in one score, weighted without any unfamiliar rows.",
    ),
    (
        "±",
        "One standard error over test rows: of a mean, by the bootstrap for ECE and AURC, by DeLong's terms "
        "for AUROC. Differences are paired row by row. The choice of the rows to fit is not part of it.",
    ),
)


def write_audit(audit: Mapping[str, Any], folder: Path, command: str = "") -> Path:
    """Write audit.json and the page audit.html.

    Args:
        audit: `Audit.as_dict()`, or what an audit.json holds.
        folder: where to write.
        command: the command line, shown at the end of the page.

    Returns:
        The path of the page.

    Example:
        >>> write_audit(json.loads(Path("runs/audit/audit.json").read_text()), Path("."))  # doctest: +SKIP
        PosixPath('audit.html')
    """
    page = folder / PAGE
    html = audit_html(audit, command)  # drawn before anything is written
    write_json(folder / NUMBERS, audit)
    write_text(page, html)
    return page


def audit_html(audit: Mapping[str, Any], command: str = "") -> str:
    """The page as text."""
    sections = [_model(audit), _calibrators(audit), _detection(audit), _done(audit)]
    part = Part("", "", "", sections)
    figures = {
        plot.name: (svg_bytes(plot.figure).decode("utf-8"), plot.spoken)
        for section in sections
        for plot in section.plots
    }
    terms = [entry for entry in glossary(SHOWN) if entry[0] not in ("*", "±", "Mutual information")]
    words = [(term, text) for term, text in WORDS if _attached(audit) or not term.startswith("SGPA")]
    run = {k: v for k, v in audit["run"].items() if k != "seconds"} | (
        {"command": command} if command else {}
    )
    return page_html(
        f"Audit of {Path(audit['model']['folder']).name}",
        _summary(audit),
        " ".join(audit["recommendation"]).replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"),
        [part],
        inline(figures),
        [*terms, *words],
        run,
    )


def _summary(audit: Mapping[str, Any]) -> str:
    """Accuracy and calibration of the model in two sentences."""
    scores = audit["methods"][PLAIN]["scores"]
    gap = scores["overconfidence"]
    text = (
        f"{audit['model']['type']} with {len(audit['model']['classes'])} classes on "
        f"{audit['data']['test']} test rows: accuracy {_spoken(scores, 'accuracy')}, "
        f"NLL {_spoken(scores, 'nll')}, ECE {_spoken(scores, 'ece')}."
    )
    points = f"{100 * abs(gap['value']):.1f} ± {100 * gap['error']:.1f} points"
    if abs(gap["value"]) <= 2 * gap["error"]:
        return f"{text} Its confidence matches its accuracy on average."
    word, side = ("over-confident", "above") if gap["value"] > 0 else ("under-confident", "below")
    return f"{text} It is {word}: its mean confidence is {points} {side} its accuracy."


def _attached(audit: Mapping[str, Any]) -> bool:
    """Whether SGPA could be attached to the model."""
    return "sgpa" in audit["methods"]


def _spoken(scores: Mapping[str, Mapping[str, float]], name: str) -> str:
    return metric(name).spoken(scores[name]["value"], scores[name]["error"])


def _model(audit: Mapping[str, Any]) -> Section:
    """The model as it is, with its reliability diagram beside that of the best calibrator."""
    section = Section(
        "model",
        "The model as it is",
        "A model is calibrated if its answers with 80 % confidence are correct 80 % of the time. Points "
        "below the diagonal are over-confident.",
    )
    methods = audit["methods"]
    columns = tuple(Column("", "", name) for name in (*SHOWN, "overconfidence"))
    caption = f"± one standard error over {audit['data']['test']} test rows."
    plain = ("", methods[PLAIN]["name"])
    section.tables.append(Titled(caption, Table((plain,), columns, _cells(methods, columns, "scores"))))
    best = min(methods, key=lambda name: methods[name]["scores"]["nll"]["value"])
    curves = {
        ("", methods[name]["name"]): _reliability(audit["reliability"][name])
        for name in (PLAIN, best if best != PLAIN else "temperature")
    }
    looks = {("", own["name"]): METHODS[name] for name, own in methods.items()}
    caption = (
        "Accuracy against confidence in 15 bins, of the model as it is and of the method with the lowest "
        f"NLL. Whiskers: one binomial standard error. Grey crosses: bins of fewer than {MCE_ANSWERS} "
        "answers. Bottom: share of answers per bin."
    )
    figure = reliability_diagrams(curves, looks)
    section.plots.append(Plot("reliability", figure, caption, "Reliability diagrams."))
    return section


def _reliability(saved: Mapping[str, Any]) -> Reliability:
    edges, confidence, accuracy, count = (
        numbers(saved[part]) for part in ("edges", "confidence", "accuracy", "count")
    )
    return Reliability(edges, confidence, accuracy, count.astype(int))


def _calibrators(audit: Mapping[str, Any]) -> Section:
    """What every method changes, and what it costs."""
    section = Section(
        "calibration",
        "What calibration would change",
        f"Every method is fitted on {audit['data']['fit']} rows and tested on the same "
        f"{audit['data']['test']} other rows.",
    )
    methods = {name: audit["methods"][name] for name in METHODS if name in audit["methods"]}
    rows = tuple(("", own["name"]) for own in methods.values())
    columns = tuple(Column("", "", name) for name in SHOWN)
    scores = Table(rows, columns, _cells(methods, columns, "scores"))
    section.tables.append(Titled("± one standard error over test rows.", scores))
    columns = tuple(Column("", "", name) for name in CHANGED)
    changes = Table(rows[1:], columns, _cells(methods, columns, "change"), signed=True)
    caption = (
        "Difference from the model as it is, paired row by row; a negative NLL or ECE is an improvement. "
        "From two standard errors on, a difference is called clear."
    )
    section.tables += [Titled(caption, changes), _costs(methods)]
    lines = [(own["name"], own["fitted"]) for own in methods.values() if own["fitted"]]
    lines += [(name, f"not tried: {why}") for name, why in audit["skipped"].items()]
    caption = "What was fitted, and what could not be tried."
    section.tables.append(Titled(caption, Grid(("Method", "Fitted"), tuple(lines)), "What was fitted"))
    return section


def _costs(methods: Mapping[str, Any]) -> Titled:
    """Time, memory and size of every method."""
    columns = tuple(Column("", "", name) for name in COSTS.values())
    cells = {
        (("", own["name"]), column): Cell(float(own["cost"][field]), None, 1)
        for own in methods.values()
        for field, column in zip(COSTS, columns, strict=True)
        if own["cost"][field] is not None
    }
    caption = (
        "Cost of a prediction, measured on the same rows in the same run; peak memory is that of the whole "
        "process on a CPU. Stored: what is kept beside the model. Fit: seconds beyond one plain pass over "
        "the rows; those of SGPA and MC dropout include their own passes."
    )
    return Titled(caption, Table(tuple(("", own["name"]) for own in methods.values()), columns, cells))


def _detection(audit: Mapping[str, Any]) -> Section:
    """How well scores recognise perturbed rows."""
    detection = audit["detection"]
    section = Section(
        "detection",
        "Recognising unfamiliar rows",
        f"{detection['rows']} test rows were changed so that they are no longer what the model was "
        "trained for. A good score is higher for a changed row than for a test row. No score was chosen or "
        "tuned on changed rows.",
    )
    mean = Column("", "mean", "auroc", label="Mean ↑")
    kinds = next(iter(detection["by_perturbation"].values()))
    columns = (mean, *(Column("", kind, "auroc", label=kind.capitalize()) for kind in kinds))
    names = {name: ("", detection["names"][name]) for name in DETECTORS if name in detection["mean"]}
    cells = {}
    for name, key in names.items():
        each = {**detection["by_perturbation"][name], "mean": detection["mean"][name]}
        for column in columns:
            cells[key, column] = Cell(each[column.shift]["value"], each[column.shift]["error"], 1)
    rows = tuple(names.values())
    caption = "AUROC ± one standard error over rows; 0.5 is chance level."
    section.tables.append(Titled(caption, Table(rows, columns, cells)))
    looks = {key: DETECTORS[name] for name, key in names.items()}
    figure = metric_bars(Table(rows, (mean,), cells), looks, abreast=1)
    caption = "Mean AUROC over all kinds of changed rows; dotted: chance level."
    section.plots.append(Plot("detection", figure, caption, "Bars of mean AUROC by score."))
    return section


def _done(audit: Mapping[str, Any]) -> Section:
    """Which rows served for what."""
    model, data, settings = audit["model"], audit["data"], audit["settings"]
    section = Section("method", "What was done", "")
    where = data["train"] or f"{data['path']}, without their labels"
    statistics, calibration = "distances, curvature of Laplace", "prior of Laplace"
    if _attached(audit):
        statistics = f"inducing queries, {statistics}"
        calibration = f"scales of SGPA, {calibration}, scale of novelty"
    lines = [
        (
            "Model",
            f"{audit['model']['folder']}: {audit['model']['type']}, {audit['model']['parameters']:,} weights",
        ),
        ("Classes", _some(model["classes"])),
        ("Rows", f"{data['rows']} of {data['path']}, drawn and divided by class, seed {settings['seed']}"),
        ("Test", f"{data['test']} rows; every number on this page but the costs"),
        (
            "Fit",
            f"{data['fit']} rows: temperature, vector and matrix scaling, temperature of MC dropout",
        ),
        ("Statistics", f"{data['statistics']} rows of {where}: {statistics}"),
        ("Calibration", f"{data['calibration']} of the rows to fit: {calibration}"),
        ("Device", f"{settings['device']}; {audit['run']['seconds']:.0f} s"),
    ]
    if data["kind"] == "image":
        lines.insert(3, ("Images", "cut to centred squares, then the model's own image processor"))
    section.tables.append(
        Titled("Nothing was downloaded or sent.", Grid(("Step", "Rows and settings"), tuple(lines)))
    )
    return section


def _some(names: list[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _cells(methods: Mapping[str, Any], columns: Iterable[Column], part: str) -> dict[CellKey, Cell]:
    """Cells of the estimates {"value", "error"} in a part of every method."""
    columns = list(columns)
    return {
        (("", own["name"]), column): Cell(
            own[part][column.metric]["value"], own[part][column.metric]["error"], 1
        )
        for own in methods.values()
        for column in columns
        if column.metric in own[part]
    }
