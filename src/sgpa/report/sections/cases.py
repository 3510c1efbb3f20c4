"""The section about single test rows: the confusion of classes, and the rows that are worth a look."""

from collections.abc import Mapping, Sequence
from typing import Any

from sgpa.report.figures.curves import select
from sgpa.report.names import is_baseline, labels
from sgpa.report.render import Confusion
from sgpa.report.sections.blocks import Card, Gallery, Material, Section, Titled

GROUPS = {
    "surest_wrong": (
        "Surest wrong answers",
        "Wrong answers with the highest probability. Look for wrong labels, and for what the inputs share.",
    ),
    "least_sure": (
        "Least sure answers",
        "Answers with the lowest probability. Such rows are worth labelling.",
    ),
    "largest_errors": (
        "Largest errors",
        "Look for wrong values in the table, and for what the inputs share.",
    ),
    "widest": ("Widest intervals", "Answers that are least certain. Such rows are worth measuring."),
}
LONGEST = 12  # characters of a class in the head of the confusion table


def cases(material: Material) -> Section:
    """The confusion table and the cases of the model that predicts."""
    section = Section("cases", "Single answers", "")
    by_method = {k: v for k, v in select(material.curves, "cases").items() if not is_baseline(k[1])}
    key = material.judged if material.judged in by_method else next(iter(by_method), None)
    if key is None:
        return section
    data = by_method[key][0]["data"]
    section.intro = f"Test rows as {labels([key])[key]} answers them."
    if data.get("confusion"):
        caption = "Test rows by true class (rows) and answer (columns); right answers are on the diagonal."
        section.tables.append(Titled(caption, _confusion(data["classes"], data["confusion"])))
    for name, (title, text) in GROUPS.items():
        if data.get(name):
            section.galleries.append(Gallery(title, text, tuple(_card(case) for case in data[name])))
    return section


def _confusion(classes: Sequence[str], table: Sequence[Sequence[int]]) -> Confusion:
    short = [name if len(name) <= LONGEST else name[: LONGEST - 1] + "…" for name in classes]
    rows = [(name, *(str(n) if n else "·" for n in line)) for name, line in zip(classes, table, strict=True)]
    return Confusion(("True class", *short), tuple(rows))


def _card(case: Mapping[str, Any]) -> Card:
    if "probability" in case:
        answer = f"{case['answer']}, {case['probability']:.0%}"
        truth = "right" if case["answer"] == case["truth"] else f"true: {case['truth']}"
    else:
        answer = f"{case['answer']:.3g} [{case['low']:.3g} to {case['high']:.3g}]"
        truth = f"true: {case['truth']:.3g}"
    return Card(
        answer=answer,
        truth=truth,
        right=case["answer"] == case["truth"]
        if "probability" in case
        else case["low"] <= case["truth"] <= case["high"],
        picture=str(case.get("picture") or ""),
        text=str(case.get("text") or case.get("caption") or ""),
    )
