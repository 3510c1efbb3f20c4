"""Sections about the predictions of one task: results, calibration, robustness, OOD detection."""

from collections.abc import Iterable
from dataclasses import replace

from sgpa.evaluation.metrics import MCE_ANSWERS
from sgpa.report.figures.bars import CHANCE, metric_bars
from sgpa.report.figures.curves import mean_risk, pool_histogram, pool_reliability, select
from sgpa.report.figures.heatmap import type_heatmap
from sgpa.report.figures.lines import Panel, line_figure, strength_panels
from sgpa.report.figures.multiples import entropy_histograms, reliability_diagrams
from sgpa.report.names import (
    CLEAN,
    DETECTION,
    ROBUSTNESS,
    Key,
    attention_name,
    by_attention,
    corruption_type,
    labels,
    metric,
    metric_order,
    sentence_case,
    shift_name,
    split_shift,
)
from sgpa.report.paired import best_against_second, difference_table
from sgpa.report.render import Grid
from sgpa.report.sections.blocks import Material, Plot, Section, Titled, among, notes
from sgpa.report.sections.findings import strongest
from sgpa.report.tables import Cells, Column, Table, columns_of, evaluation_table, make_table

HEADLINE = ("accuracy", "mcc", "mae", "rmse", "nll", "ece", "coverage_50", "coverage_90")
DRAWN = ("accuracy", "mcc", "mae", "rmse", "nll", "ece", "mce")  # what figures of many methods show
PERFORMANCE = ("accuracy", "mcc", "mae", "rmse", "coverage_50", "coverage_90")
MANY = 4  # with more rows, figures show fewer metrics and repeated numbers are folded
ALL = "All numbers"


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


def results(material: Material) -> Section:
    """The main table, paired differences, and the clean metrics as bars."""
    section = Section("results", "Results", "")
    table = material.annotated(headline(material.cells))
    if table.rows:
        caption = f"{material.errors}; the best of each column is bold."
        section.tables.append(Titled(f"{caption} {notes(table)}".strip(), table))
    fold = "Paired differences between methods"
    differences = difference_table(table)
    if differences.rows:
        caption = (
            "Each method minus MLE with the same attention: mean over shared seeds ± one standard error."
        )
        section.tables.append(Titled(caption, differences, fold))
    top = _top_grid(table)
    if top.rows and len(table.rows) > 2:  # with two methods it repeats the table above
        caption = (
            "The best method of each column minus the second best, over shared seeds, with the p-value of a "
            "paired t-test. Where an ensemble is best, single models are compared as well."
        )
        section.tables.append(Titled(caption, top, fold))
    clean = material.annotated(evaluation_table(material.cells, CLEAN))
    if clean.rows:
        clean = _for_bars(clean, few=material.judged is not None)
        spoken = f"Bars of {', '.join(metric(c.metric).name for c in clean.columns)} for {among(clean.rows)}."
        caption = "Clean test set. Whiskers: one standard error. Arrows: the better direction."
        caption += " Dotted line: chance level." if any(c.metric in CHANCE for c in clean.columns) else ""
        section.plots.append(Plot("metrics", metric_bars(clean, material.style), caption, spoken))
    return section


def _for_bars(table: Table, *, few: bool) -> Table:
    """With many rows, only the main metrics; with `few`, only those of the main table."""
    drawn = [name for name in HEADLINE if not name.startswith("coverage")] if few else DRAWN
    kept = [c for c in table.columns if (len(table.rows) <= MANY and not few) or c.metric in drawn]
    return Table(table.rows, tuple(kept or table.columns), table.cells, table.paper)


def _top_grid(table: Table) -> Grid:
    names = labels(table.rows)
    lines: list[tuple[str, ...]] = []
    group = ""
    for top in best_against_second(table.cells, table.columns):
        column = next(c for c in table.columns if c == top.column)
        shape, d = metric(column.metric), top.difference
        p = "" if d.p is None else f"{d.p:.3f}" if d.p >= 0.001 else "< 0.001"
        text = shape.text(d.mean, d.error).replace("-", "−")
        if column.group != group:
            group = column.group
            lines.append((group,))
        lines.append((column.heading, names[top.best], names[top.second], text, str(d.n), p))
    return Grid(("", "Best", "Second", "Difference", "Seeds", "p"), tuple(lines))


def calibration(material: Material) -> Section:
    """Confidence against accuracy, and error rate against coverage."""
    section = Section(
        "calibration",
        "Calibration",
        "A model is calibrated if its answers with 80 % confidence are correct 80 % of the time. Points on "
        "the diagonal are calibrated, points below it over-confident, points above it under-confident.",
    )
    columns = [c for c in columns_of(material.cells, CLEAN) if c.metric not in PERFORMANCE]
    kinds = {c.get("kind") for c in material.curves}
    if not any(c.metric != "nll" for c in columns) and not kinds & {"reliability", "risk-coverage"}:
        return section  # regression has no confidence
    table = material.annotated(make_table(material.cells, columns))
    if table.rows:
        caption = "Quality of the probabilities on the clean test set."
        fold = ALL if len(table.rows) > MANY else ""
        section.tables.append(Titled(f"{caption} {notes(table)}".strip(), table, fold))
    for place, shift in enumerate(_curved(material, "reliability")):
        pooled = {k: pool_reliability(g) for k, g in select(material.curves, "reliability", shift).items()}
        pooled = {key: r for key, r in pooled.items() if r.count.sum() > 0}
        where = sentence_case(shift_name(shift))
        name = "reliability" + (f"-{split_shift(shift)[0]}" if shift else "")
        for kind, keys in _parts(pooled):
            few = {key: pooled[key] for key in keys}
            caption = (
                f"{where}{kind.comma}. Seeds pooled. Whiskers: one binomial standard error. Bottom: share of "
                "answers per bin."
            )
            if any(((r.count > 0) & (r.count < MCE_ANSWERS)).any() for r in few.values()):
                caption += f" Grey crosses: bins of fewer than {MCE_ANSWERS} answers."
            spoken = f"Reliability diagrams of {among(few)} on {shift_name(shift)}{kind.comma}."
            fold = "Reliability under shift" if place and len(pooled) > MANY else ""
            figure = reliability_diagrams(few, material.style)
            section.plots.append(Plot(name + kind.dash, figure, caption, spoken, fold))
    panels = []
    for shift in _curved(material, "risk-coverage"):
        groups = select(material.curves, "risk-coverage", shift)
        lines = {key: mean_risk(group) for key, group in groups.items()}
        panels.append(Panel(sentence_case(shift_name(shift)), lines))
    if panels:
        figure = line_figure(
            panels, material.style, "coverage: share of inputs answered, most certain first (%)", marks=5
        )
        caption = "Error rate (%) of the most certain answers against coverage. Bands: one standard error."
        section.plots.append(Plot("risk-coverage", figure, caption, f"Risk-coverage curves. {caption}"))
    return section


def _curved(material: Material, kind: str) -> list[str]:
    """Shifts whose curves are shown: clean and strongest, otherwise the first one."""
    curved = list(dict.fromkeys(c.get("shift") or "" for c in material.curves if c.get("kind") == kind))
    chosen = [s for s in curved if not s] + [s for s in strongest(material.cells) if s in curved]
    return chosen or curved[:1]


class _Kind:
    """An attention in captions and file names; empty where all rows are shown together."""

    def __init__(self, attention: str) -> None:
        self.comma = f", {attention_name(attention)}" if attention else ""
        self.dash = f"-{attention}" if attention else ""


def _parts(keys: Iterable[Key]) -> list[tuple[_Kind, list[Key]]]:
    return [(_Kind(attention), rows) for attention, rows in by_attention(keys).items() if rows]


def robustness(material: Material) -> Section:
    """Metrics under distribution shift."""
    section = Section(
        "robustness",
        "Robustness",
        "The same trained models on shifted test inputs. A well calibrated model becomes less confident as "
        "its accuracy falls, so that NLL and ECE rise slowly.",
    )
    cells = material.cells
    shifted = [c for c in columns_of(cells, ROBUSTNESS) if not corruption_type(c.shift)]
    for family in dict.fromkeys(split_shift(c.shift)[0] for c in shifted):
        own = [c for c in shifted if split_shift(c.shift)[0] == family]
        section.plots.append(_family(material, family, own))
    section.plots += _by_type(material)
    graded = any(split_shift(c.shift)[1] is not None for c in shifted)
    for name in metric_order(c.metric for c in shifted):
        columns = []
        for c in (c for c in shifted if c.metric == name):
            family, strength = split_shift(c.shift)
            label = metric(name).heading if strength is None else f"strength {strength}"
            columns.append(Column(c.evaluation, c.shift, c.metric, sentence_case(shift_name(family)), label))
        table = material.annotated(make_table(cells, columns))
        caption = f"{metric(name).heading}. {notes(table)}".strip()
        section.tables.append(Titled(caption, table, ALL if graded else ""))
    if not graded and section.tables:  # a shift without strengths: one table for all metrics
        table = material.annotated(make_table(cells, evaluation_table(cells, ROBUSTNESS).columns))
        section.tables = [Titled(f"Mean over seeds ± one standard error. {notes(table)}".strip(), table)]
    return section


def _family(material: Material, family: str, columns: list[Column]) -> Plot:
    """Lines against strength, or bars for a shift that has none."""
    words, rows = shift_name(family), {row for row, c in material.cells if c in columns}
    measured = metric_order(c.metric for c in columns)
    measured = [m for m in measured if len(rows) <= MANY or m in DRAWN] or measured
    drawn = ", ".join(metric(m).name for m in measured)
    steps = [c for c in columns if split_shift(c.shift)[1] is not None]
    if steps:
        panels = strength_panels(material.cells, family, measured)
        figure = line_figure(panels, material.style, "shift strength (0 = clean test set)", whole=True)
        caption = f"{sentence_case(words)}, from clean to strongest. Bands: one standard error."
        return Plot(
            f"robustness-{family}", figure, caption, f"Lines of {drawn} against the strength of {words}."
        )
    table = material.annotated(make_table(material.cells, [c for c in columns if c.metric in measured]))
    caption = f"{sentence_case(words)}. Whiskers: one standard error."
    return Plot(
        f"robustness-{family}", metric_bars(table, material.style), caption, f"Bars of {drawn} under {words}."
    )


def _by_type(material: Material) -> list[Plot]:
    """NLL, or the first metric there is, of every corruption type at the highest intensity."""
    single = [c for c in columns_of(material.cells, ROBUSTNESS) if corruption_type(c.shift)]
    measured = metric_order(c.metric for c in single)
    if not measured:
        return []
    name = "nll" if "nll" in measured else measured[0]
    top = max(split_shift(c.shift)[1] or 0 for c in single)
    columns = [c for c in single if c.metric == name and (split_shift(c.shift)[1] or 0) == top]
    plots = []
    for kind, keys in _parts(row for row, c in material.cells if c in columns):
        caption = (
            f"{metric(name).heading} by corruption type, strength {top}{kind.comma}. The shade runs within "
            "each type from the best method (light) to the worst (dark)."
        )
        figure = type_heatmap(material.cells, columns, keys)
        plots.append(Plot(f"types{kind.dash}", figure, caption, f"Heat map for {among(keys)}: {caption}"))
    return plots


def detection(material: Material) -> Section:
    """Detection of out-of-distribution inputs by the uncertainty of the prediction."""
    section = Section(
        "detection",
        "Out-of-distribution detection",
        "Out-of-distribution (OOD) inputs do not come from the training distribution. Predictions for them "
        "should be more uncertain than for test inputs, so that the uncertainty can detect them.",
    )
    table = material.annotated(evaluation_table(material.cells, DETECTION))
    if table.rows:
        caption = "Detection by entropy (variance in regression); OOD inputs are the positive class."
        fold = ALL if len(table.rows) > MANY else ""
        section.tables.append(Titled(f"{caption} {notes(table)}".strip(), table, fold))
    reshared = {c.shift for c in table.columns if c.metric == "aupr_paper_share"}
    drawn = [c for c in table.columns if c.metric == "auroc"]
    drawn += [c for c in table.columns if c.metric == ("aupr_paper_share" if c.shift in reshared else "aupr")]
    drawn = [replace(c, label="AUPR ↑") if c.metric == "aupr_paper_share" else c for c in drawn]
    if len(table.rows) > 2 and drawn:
        shown = Table(table.rows, tuple(drawn), table.cells, table.paper)
        sets = len({c.shift for c in drawn})
        figure = metric_bars(shown, material.style, abreast=3 if sets == 3 else 2)
        caption = "Detection of each OOD set. Whiskers: one standard error. Dotted line: chance level." + (
            " AUPR is computed for the share of OOD inputs in the paper." if reshared else ""
        )
        section.plots.append(
            Plot("detection", figure, caption, f"Bars of AUROC and AUPR for {among(table.rows)}.")
        )
    section.plots += _entropies(material)
    return section


def _entropies(material: Material) -> list[Plot]:
    curves = material.curves
    inside = {key: pool_histogram(group) for key, group in select(curves, "entropy", "").items()}
    shifts = dict.fromkeys(c.get("shift") or "" for c in curves if c.get("kind") == "entropy")
    plots: list[Plot] = []
    for shift in filter(None, shifts):
        outside = {key: pool_histogram(group) for key, group in select(curves, "entropy", shift).items()}
        words = shift_name(shift)
        for kind, keys in _parts(key for key in inside if key in outside):
            caption = (
                f"Entropy of predictions on test inputs (filled) and on {words} (outlined){kind.comma}. "
                "Seeds pooled."
            )
            spoken = f"Entropy histograms of {among(keys)}: test inputs against {words}{kind.comma}."
            figure = entropy_histograms({k: inside[k] for k in keys}, outside, words, material.style)
            name = f"entropy-{shift.replace(':', '-')}{kind.dash}"
            first = next(iter(filter(None, shifts)))
            fold = "Entropy on the other OOD sets" if shift != first and len(inside) > MANY else ""
            plots.append(Plot(name, figure, caption, spoken, fold))
    return plots
