"""Sections about single examples, time and memory, and training."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sgpa.report.figures.bars import metric_bars
from sgpa.report.figures.curves import select
from sgpa.report.figures.diagnostics import layer_diagnostics, layer_histories, training_panels
from sgpa.report.figures.examples import METHODS_ABREAST, MOST_EXAMPLES, example_predictions, match_examples
from sgpa.report.figures.lines import line_figure
from sgpa.report.names import key_order, labels, metric
from sgpa.report.sections.blocks import Material, Plot, Section, Titled, among
from sgpa.report.tables import Record, evaluation_table

COST = "cost"
COSTS = ("train_seconds", "seconds_per_step", "predict_seconds_per_row", "peak_memory_bytes")
FEW = 3  # methods whose layers are shown at once


def examples(material: Material) -> Section:
    """Single inputs with the predictions of all methods."""
    section = Section(
        "examples",
        "Example predictions",
        "Single inputs with the probability each method gives to every class. H is the entropy of the "
        "prediction and MI its mutual information, the part that comes from the model; both in nats.",
    )
    matched = match_examples(select(material.curves, "examples"))
    if matched:
        shown = min(len(matched), MOST_EXAMPLES)
        caption = "First seed of each method." + (
            f" {shown} of {len(matched)} examples." if shown < len(matched) else ""
        )
        spoken = "Class probabilities for: " + ", ".join(e.caption for e in matched[:shown]) + "."
        keys = key_order(key for example in matched for key in example.answers)
        for number, start in enumerate(range(0, len(keys), METHODS_ABREAST)):
            few = keys[start : start + METHODS_ABREAST]
            name = f"examples-{number + 1}" if number else "examples"
            figure = example_predictions(matched, few, material.style)
            fold = "The other methods" if number else ""
            section.plots.append(Plot(name, figure, caption, spoken, fold))
    return section


def cost_records(timings: Iterable[Mapping[str, Any]]) -> list[Record]:
    """Timings of a run as records, one per number, to be averaged like other metrics."""
    return [
        {**timing, "evaluation": COST, "shift": "", "metric": name, "value": timing[name]}
        for timing in timings
        for name in COSTS
        if timing.get(name) is not None
    ]


def cost(material: Material) -> Section:
    """Training and prediction time, and memory."""
    section = Section(
        "cost", "Time and memory", "Measured during the runs, on the hardware listed under Provenance."
    )
    table = evaluation_table(material.cost, COST)
    if table.rows:
        fold = "All numbers" if len(table.rows) > FEW else ""
        section.tables.append(Titled("Mean over seeds ± one standard error.", table, fold))
        drawn = ", ".join(metric(c.metric).name.lower() for c in table.columns)
        caption = "Time and memory of each method. Whiskers: one standard error."
        figure = metric_bars(table, material.style)
        section.plots.append(Plot("cost", figure, caption, f"Bars of {drawn} for {among(table.rows)}."))
    return section


def training(material: Material) -> Section:
    """Training curves, and whether the posterior of a layer collapsed to its prior."""
    section = Section(
        "training",
        "Training and posterior collapse",
        "A variational layer has collapsed when its KL is zero: its posterior equals its prior, and its "
        "output carries no information. KL and signal-to-noise ratio of a working layer stay away from zero.",
    )
    groups = select(material.curves, "training")
    panels = training_panels(groups)
    if panels:
        caption = "Training curves: mean over seeds. Bands: one standard error."
        figure = line_figure(panels, material.style, "epoch", whole=True, marks=5)
        section.plots.append(Plot("training", figure, caption, f"Training curves of {among(groups)}."))
    names = labels(groups)
    layered: Sequence[Any] = [key for key, group in groups.items() if layer_histories(group)]
    for key in layered:
        name = "-".join(filter(None, ("layers", *key)))
        caption = f"{names[key]}: every layer over epochs, mean over seeds."
        spoken = f"Per-layer diagnostics of {names[key]} over epochs."
        fold = "Layers of the other methods" if len(layered) > FEW and key[1] != "sgpa" else ""
        section.plots.append(Plot(name, layer_diagnostics(groups[key]), caption, spoken, fold))
    return section
