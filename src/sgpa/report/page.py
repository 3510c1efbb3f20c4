"""One directory per report: report.html (self-contained), report.md, and every figure as SVG and PDF."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sgpa.errors import InputError
from sgpa.report.findings import Finding, findings, verdict
from sgpa.report.names import METHODS
from sgpa.report.sections import Plot, Section, build
from sgpa.report.style import inline_svg, save
from sgpa.report.tables import Task, aggregate, tasks, to_html, to_markdown

GLOSSARY = (
    ("NLL", "How surprised the model is by the right answer, on average; being sure and wrong costs most."),
    (
        "ECE",
        "The average gap between stated confidence and how often it comes true, over 15 confidence bins.",
    ),
    ("MCE", "The largest such gap of any bin; one sparse bin can decide it."),
    (
        "Brier score",
        "The squared distance between the probabilities and the answer: 0 is perfect, 2 the worst.",
    ),
    ("AURC", "The share of wrong answers among those kept when the least certain are set aside, on average."),
    (
        "Entropy",
        "How spread out a prediction is: 0 when one class gets everything, log(classes) when all are equal.",
    ),
    (
        "Mutual information",
        "The part of the entropy that comes from not knowing the model; more data would shrink it.",
    ),
    (
        "AUROC",
        "The chance that an unfamiliar input gets a higher entropy than a familiar one: 0.5 is guessing.",
    ),
    (
        "AUPR",
        "Precision averaged over recall with unfamiliar inputs as positives; guessing scores their share.",
    ),
    ("±", "One standard error of the mean over seeds: how far the mean would move with other random seeds."),
)


@dataclass(frozen=True)
class Part:
    """What one task shows; the title is empty when there is only one task."""

    title: str
    prefix: str  # of figure files and element ids
    verdict: str
    findings: list[Finding]
    sections: list[Section]


def write_report(results: Mapping[str, Any], directory: Path) -> Path:
    """Write report.html, report.md and figures/ under `directory`; returns the path of the page.

    `results` is the content of a run's results.json (schema 1). Nothing is loaded but these numbers.

    >>> results = json.loads(Path("runs/demo/results.json").read_text())  # doctest: +SKIP
    >>> write_report(results, Path("runs/demo"))  # doctest: +SKIP
    PosixPath('runs/demo/report.html')
    """
    _check(results)
    parts = _parts(results)
    folder = directory / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for part in parts:
        for plot in (plot for section in part.sections for plot in section.plots):
            name = _slug(part.prefix + plot.name)
            svg, _ = save(plot.figure, folder / name)
            drawn[id(plot)] = (name, Markup(inline_svg(svg.read_text("utf-8"), f"fig-{name}", plot.spoken)))
    page = directory / "report.html"
    page.write_text(_html(results, parts, drawn), encoding="utf-8")
    (directory / "report.md").write_text(_markdown(results, parts, drawn), encoding="utf-8")
    return page


def _check(results: Mapping[str, Any]) -> None:
    if results.get("schema") != 1:
        raise InputError(f"results have schema {results.get('schema')!r}; this version reads schema 1")
    if not results.get("records"):
        raise InputError("results hold no records; evaluate a trained model first")


def _parts(results: Mapping[str, Any]) -> list[Part]:
    records, curves = results["records"], results.get("curves") or []
    found = tasks(records)
    parts = []
    for task in found:
        cells = aggregate(records, task)
        said = findings(cells)
        title = " ".join(filter(None, task)) if len(found) > 1 else ""
        own = curves if len(found) == 1 else [c for c in curves if _belongs(c, task)]
        parts.append(Part(title, f"{title}-" if title else "", verdict(said, cells), said, build(cells, own)))
    return parts


def _belongs(curve: Mapping[str, Any], task: Task) -> bool:
    return (curve.get("dataset"), curve.get("augmentation") or task[1]) == task


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _duration(seconds: float) -> str:
    """'8.4 s', '2 min 05 s' or '3 h 20 min'."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _provenance(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The facts of a run that were recorded, as (name, text)."""
    facts = [("Date", run.get("date")), ("Commit", run.get("commit")), ("Hardware", run.get("hardware"))]
    versions = run.get("versions") or {}
    facts.append(("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())))
    seconds = (run.get("seconds") or {}).items()
    times = ", ".join(
        f"{METHODS.get(name, name)} {_duration(float(s))}" for name, s in seconds if s is not None
    )
    facts.append(("Time", times))
    return [(name, str(text)) for name, text in facts if text]


Drawn = Mapping[int, tuple[str, Markup]]


def _html(results: Mapping[str, Any], parts: Sequence[Part], drawn: Drawn) -> str:
    environment = Environment(
        loader=PackageLoader("sgpa.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    run = results.get("run") or {}
    recipe = run.get("recipe")
    return environment.get_template("page.html.j2").render(
        title=results.get("title") or "Results",
        summary=results.get("summary") or "",
        parts=parts,
        image=lambda plot: drawn[id(plot)][1],
        rows=lambda titled: to_html(titled.table),
        slug=_slug,
        glossary=GLOSSARY,
        command=run.get("command") or "",
        recipe=json.dumps(recipe, indent=2, ensure_ascii=False, default=str) if recipe else "",
        facts=_provenance(run),
    )


def _markdown(results: Mapping[str, Any], parts: Sequence[Part], drawn: Drawn) -> str:
    def figure(plot: Plot) -> str:
        return f"![{plot.spoken}](figures/{drawn[id(plot)][0]}.svg)\n\n*{plot.caption}*"

    blocks = [f"# {results.get('title') or 'Results'}", results.get("summary") or ""]
    for part in parts:
        level = "###" if part.title else "##"
        blocks += [f"## {part.title}" if part.title else "", part.verdict]
        blocks.append("\n".join(f"- **{f.title}.** {' '.join(f.lines)}" for f in part.findings))
        for section in part.sections:
            blocks += [f"{level} {section.title}", section.intro]
            for titled in section.tables:
                blocks += [titled.caption, to_markdown(titled.table).rstrip()]
            blocks += [figure(plot) for plot in section.plots]
    blocks += ["## How to read this", "\n".join(f"- **{word}**: {meaning}" for word, meaning in GLOSSARY)]
    run = results.get("run") or {}
    if run:
        blocks += ["## Provenance", "\n".join(f"- {name}: {text}" for name, text in _provenance(run))]
        if run.get("command"):
            blocks.append(f"```\n{run['command']}\n```")
    return "\n\n".join(block for block in blocks if block) + "\n"
