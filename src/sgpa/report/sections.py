"""What the report shows, in order: tables and figures of each section, only where there is data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

from sgpa.report import diagnostics, figures
from sgpa.report.curves import Curve, pool_histogram, pool_reliability, select
from sgpa.report.findings import CLEAN, DETECTION, ROBUSTNESS, strongest
from sgpa.report.names import (
    Key,
    key_order,
    labels,
    metric,
    metric_order,
    sentence_case,
    shift_name,
    split_shift,
)
from sgpa.report.tables import Cells, Column, Table, columns_of, evaluation_table, make_table

HEADLINE = ("accuracy", "mcc", "mae", "rmse", "nll", "ece")
PERFORMANCE = ("accuracy", "mcc", "mae", "rmse")


@dataclass(frozen=True)
class Titled:
    """A table with its caption; `folded` ones open on demand."""

    caption: str
    table: Table
    folded: bool = False


@dataclass(frozen=True)
class Plot:
    """A figure, its file name, its caption, and the words that stand for it when it cannot be seen."""

    name: str
    figure: Figure
    caption: str
    spoken: str


@dataclass
class Section:
    """One heading of the report."""

    name: str
    title: str
    intro: str
    tables: list[Titled] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Nothing to show: the section is left out."""
        return not (self.tables or self.plots)

    @property
    def paired(self) -> bool:
        """One figure and little else: words and figure stand side by side where there is room."""
        return len(self.plots) == 1 and sum(len(t.table.columns) for t in self.tables) <= 3


def _among(keys: Sequence[Key] | Mapping[Key, Any]) -> str:
    names = list(labels(keys).values())
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def headline(cells: Cells) -> Table:
    """The main table: clean, strongest shifts and detection side by side."""
    columns = [Column(CLEAN, "", name, "Clean test set") for name in HEADLINE]
    for shift in strongest(cells):
        group = sentence_case(shift_name(shift))
        columns += [Column(ROBUSTNESS, shift, name, group) for name in HEADLINE]
    for column in columns_of(cells, DETECTION):
        if column.metric == "auroc":
            columns.append(Column(DETECTION, column.shift, "auroc", f"Detecting {shift_name(column.shift)}"))
    return make_table(cells, columns)


def overview(cells: Cells) -> Section:
    """The main table, and the clean metrics as bars."""
    section = Section("results", "Results", "")
    table = headline(cells)
    if table.rows:
        section.tables.append(
            Titled("Mean over seeds ± one standard error; the best of each column is bold.", table)
        )
    clean = evaluation_table(cells, CLEAN)
    if clean.rows:
        spoken = (
            f"Bars of {', '.join(metric(c.metric).name for c in clean.columns)} for {_among(clean.rows)}."
        )
        caption = "Clean test set, every metric. Whiskers are one standard error, arrows the better side."
        section.plots.append(Plot("metrics", figures.metric_bars(clean), caption, spoken))
    return section


def calibration(cells: Cells, curves: Sequence[Curve]) -> Section:
    """Do stated confidences come true?"""
    section = Section(
        "calibration",
        "Calibration",
        "When a model says 80 %, is it right 8 times in 10? Points on the dotted diagonal are; points "
        "below it claim too much, points above it too little.",
    )
    columns = [c for c in columns_of(cells, CLEAN) if c.metric not in PERFORMANCE]
    table = make_table(cells, columns)
    if table.rows:
        section.tables.append(Titled("Quality of the probabilities on the clean test set.", table))
    curved = list(dict.fromkeys(c.get("shift") or "" for c in curves if c.get("kind") == "reliability"))
    chosen = [s for s in curved if not s] + [s for s in strongest(cells) if s in curved]
    for shift in chosen or curved[:1]:
        pooled = {key: pool_reliability(group) for key, group in select(curves, "reliability", shift).items()}
        pooled = {key: r for key, r in pooled.items() if r.count.sum() > 0}
        if not pooled:
            continue
        where = sentence_case(shift_name(shift))
        caption = (
            f"{where}. Seeds pooled; whiskers are one binomial standard error; beneath, the share of answers."
        )
        spoken = f"Reliability diagrams of {_among(pooled)} on {shift_name(shift)}."
        name = "reliability" + (f"-{split_shift(shift)[0]}" if shift else "")
        section.plots.append(Plot(name, figures.reliability_diagrams(pooled), caption, spoken))
    return section


def robustness(cells: Cells) -> Section:
    """Metrics as inputs move away from the training data."""
    section = Section(
        "robustness",
        "Robustness",
        "The same trained models on inputs that are corrupted more and more. A model that knows its limits "
        "loses confidence along with accuracy, so its NLL and ECE rise slowly.",
    )
    found = columns_of(cells, ROBUSTNESS)
    names = metric_order(c.metric for c in found)
    for family in dict.fromkeys(split_shift(c.shift)[0] for c in found):
        steps = [
            c for c in found if split_shift(c.shift)[0] == family and split_shift(c.shift)[1] is not None
        ]
        if steps:
            measured = metric_order(c.metric for c in steps)
            words = shift_name(family)
            caption = f"{sentence_case(words)}, from clean to strongest. Bands are one standard error."
            spoken = (
                f"Lines of {', '.join(metric(m).name for m in measured)} against the strength of {words}."
            )
            figure = figures.strength_curves(cells, family, measured)
            section.plots.append(Plot(f"robustness-{family}", figure, caption, spoken))
    for name in names:
        columns = []
        for c in (c for c in found if c.metric == name):
            family, strength = split_shift(c.shift)
            group = sentence_case(shift_name(family))
            label = "value" if strength is None else f"strength {strength}"
            columns.append(Column(c.evaluation, c.shift, c.metric, group, label))
        section.tables.append(Titled(metric(name).heading, make_table(cells, columns), folded=True))
    return section


def detection(cells: Cells, curves: Sequence[Curve]) -> Section:
    """Telling unfamiliar inputs from familiar ones by the entropy of the prediction."""
    section = Section(
        "detection",
        "Unfamiliar inputs",
        "Inputs that belong to no class the model knows. Their predictions should be spread out: the "
        "further the outlined histogram lies to the right of the filled one, the easier it is to tell them "
        "apart.",
    )
    table = evaluation_table(cells, DETECTION)
    if table.rows:
        section.tables.append(
            Titled("Detection by entropy; unfamiliar inputs are the positive class.", table)
        )
    inside = {key: pool_histogram(group) for key, group in select(curves, "entropy", "").items()}
    for shift in dict.fromkeys(c.get("shift") or "" for c in curves if c.get("kind") == "entropy"):
        outside = {key: pool_histogram(group) for key, group in select(curves, "entropy", shift).items()}
        both = [key for key in inside if key in outside]
        if shift and both:
            words = shift_name(shift)
            caption = (
                f"Entropy of predictions on test inputs (filled) and on {words} (outlined). Seeds pooled."
            )
            spoken = f"Entropy histograms of {_among(both)}: test inputs against {words}."
            figure = figures.entropy_histograms(inside, outside, words)
            section.plots.append(Plot(f"entropy-{shift.replace(':', '-')}", figure, caption, spoken))
    return section


def examples(curves: Sequence[Curve]) -> Section:
    """Inputs and what the methods say about them."""
    section = Section(
        "examples",
        "What it looks like",
        "Single inputs with the probability each method gives to every class. H is the entropy of the "
        "prediction, MI the part of it that comes from not knowing the model, both in nats.",
    )
    found = diagnostics.match_examples(select(curves, "examples"))
    if found:
        shown = min(len(found), diagnostics.MOST_EXAMPLES)
        caption = "First seed of each method." + (
            f" {shown} of {len(found)} examples." if shown < len(found) else ""
        )
        spoken = "Class probabilities for: " + ", ".join(e.caption for e in found[:shown]) + "."
        keys = key_order(key for example in found for key in example.answers)
        for start in range(0, len(keys), diagnostics.METHODS_ABREAST):
            few = keys[start : start + diagnostics.METHODS_ABREAST]
            name = f"examples-{start // diagnostics.METHODS_ABREAST + 1}" if start else "examples"
            section.plots.append(Plot(name, diagnostics.example_predictions(found, few), caption, spoken))
    return section


def training(curves: Sequence[Curve]) -> Section:
    """How the runs went, and whether any layer's posterior fell back to its prior."""
    section = Section(
        "training",
        "Training and collapse",
        "A variational layer has collapsed when its KL falls to zero: its posterior is then the prior and "
        "the layer carries nothing. A healthy layer keeps its KL and its signal-to-noise ratio away from "
        "zero; the noise of single tokens averages out.",
    )
    groups = select(curves, "training")
    if diagnostics.training_histories(groups):
        caption = "Training over epochs; mean over seeds, bands are one standard error."
        spoken = f"Training curves of {_among(groups)}."
        section.plots.append(Plot("training", diagnostics.training_curves(groups), caption, spoken))
    names = labels(groups)
    for (attention, method), group in groups.items():
        if diagnostics.layer_histories(group):
            title = names[attention, method]
            name = "-".join(filter(None, ("layers", attention, method)))
            spoken = f"Per-layer diagnostics of {title} over epochs."
            caption = f"{title}, layer by layer; mean over seeds."
            section.plots.append(Plot(name, diagnostics.layer_diagnostics(group), caption, spoken))
    return section


def build(cells: Cells, curves: Sequence[Curve]) -> list[Section]:
    """All sections of one task that hold anything."""
    made = [
        overview(cells),
        calibration(cells, curves),
        robustness(cells),
        detection(cells, curves),
        examples(curves),
        training(curves),
    ]
    return [section for section in made if not section.empty]
