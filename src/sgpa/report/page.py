"""Writes a report: report.html (self-contained), report.md, results.csv, tables/ and figures/."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from sgpa.core.files import write_text
from sgpa.report.export import markdown_tables, results_csv
from sgpa.report.figures.bars import metric_bars
from sgpa.report.figures.style import looks, save
from sgpa.report.figures.svg import Inlined, inline
from sgpa.report.judgement import Judgement, count_rows, judge, with_row_errors
from sgpa.report.merge import check, timings
from sgpa.report.names import Task, key_order, task_name, task_of
from sgpa.report.provenance import command, facts, recipe
from sgpa.report.ranking import rank_table
from sgpa.report.render import Confusion, Grid, to_html, to_markdown
from sgpa.report.sections import cost_and_training, predictions, trust
from sgpa.report.sections.blocks import Material, Plot, Section, Titled
from sgpa.report.sections.cases import cases
from sgpa.report.sections.findings import Finding, findings, standing, verdict
from sgpa.report.sections.glossary import glossary
from sgpa.report.sections.overview import best_where, overall
from sgpa.report.sections.warnings import remarks, warnings
from sgpa.report.tables import Table, aggregate, tasks

SECTIONS = (
    predictions.results,
    cases,
    predictions.calibration,
    predictions.robustness,
    predictions.detection,
    trust.trust,
    cost_and_training.examples,
    cost_and_training.cost,
    cost_and_training.training,
)


Words = Sequence[tuple[str, str]]  # the glossary


@dataclass(frozen=True)
class Part:
    """The part of the page about one task, or about all of them (without a title)."""

    title: str
    prefix: str  # of figure files and element ids
    verdict: str
    sections: list[Section]
    findings: list[Finding] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def write_report(results: Mapping[str, Any], directory: Path, *, pdf: bool = True) -> Path:
    """Write the report of saved results. No model or data set is loaded.

    Args:
        results: the content of a run's results.json (schema 1), or several of them joined by `merge`.
        directory: where to write report.html (self-contained), report.md, results.csv (one line per number),
            tables/ (Markdown, in the form of the paper's tables) and figures/ (SVG).
        pdf: also write every figure as PDF.

    Returns:
        The path of report.html.

    Example:
        >>> results = json.loads(Path("runs/demo/results.json").read_text())  # doctest: +SKIP
        >>> write_report(results, Path("runs/demo"))  # doctest: +SKIP
        PosixPath('runs/demo/report.html')
    """
    check(results)
    judgement = judge(results) if len(tasks(results["records"])) == 1 else None
    materials = _materials(results, judgement)
    ranks = rank_table(results["records"])
    parts = _parts(ranks, materials, judgement)
    words = glossary(
        {record["metric"] for record in results["records"]} | ({"rank"} if ranks is not None else set())
    )
    for folder in ("figures", "tables"):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    figures = {}
    for name, plot in _plots(parts):
        svg = save(plot.figure, directory / "figures" / name, pdf=pdf)
        figures[name] = (svg.read_text("utf-8"), plot.spoken)
    for material in materials:
        for file, text in markdown_tables(material).items():
            write_text(directory / "tables" / file, text)
    write_text(directory / "results.csv", results_csv(results["records"]))
    write_text(directory / "report.md", _markdown(results, parts, words))
    page = directory / "report.html"
    write_text(page, _html(results, parts, words, inline(figures)))
    return page


def _materials(results: Mapping[str, Any], judgement: Judgement | None) -> list[Material]:
    records, curves = results["records"], results.get("curves") or []
    costs = cost_and_training.cost_records(timings(results))
    all_tasks = tasks(records)
    style = looks(key_order((r.get("attention") or "", r["method"]) for r in (*records, *costs, *curves)))
    return [
        Material(
            task,
            with_row_errors(cells, own),
            own,
            aggregate(costs, task),
            style,
            judged=None if judgement is None else judgement.key,
            test_rows=count_rows(cells, own),
        )
        for task in all_tasks
        for cells in (aggregate(records, task),)
        for own in (curves if len(all_tasks) == 1 else [c for c in curves if _belongs(c, task)],)
    ]


def _belongs(curve: Mapping[str, Any], task: Task) -> bool:
    return task_of(curve.get("dataset", ""), curve.get("augmentation")) == task


def _parts(ranks: Table | None, materials: Sequence[Material], judgement: Judgement | None) -> list[Part]:
    """The overview of all tasks, where there is one, then each task."""
    several = len(materials) > 1
    parts, explained = [], set[str]()
    front = _front(ranks, materials)
    if not front.empty and judgement is None:
        together = overall({m.task: m.cells for m in materials}) if several else ""
        parts.append(Part("", "", together, [front]))
    for material in materials:
        sentences = findings(material.cells)
        made = [section(material) for section in SECTIONS]
        title = task_name(material.task) if several else ""
        prefix = _slug("-".join(material.task)) + "-" if several else ""
        shown = [section for section in made if not section.empty]
        for section in shown:  # every introduction appears once
            section.intro = "" if section.name in explained else section.intro
        explained |= {section.name for section in shown}
        summary = standing([material.cells]) if several else verdict(sentences, material.cells)
        problems = warnings(material)
        if judgement is not None:
            summary, problems, sentences = judgement.summary, [*judgement.problems, *problems], []
        parts.append(Part(title, prefix, summary, shown, sentences, problems, remarks(material)))
    return parts


def _front(ranks: Table | None, materials: Sequence[Material]) -> Section:
    """The best methods and average ranks; empty for two methods on one task."""
    section = Section("overview", "Overview", "")
    rows = {row for material in materials for row, _ in material.cells}
    grid = best_where({material.task: material.cells for material in materials})
    if grid.rows and (len(materials) > 1 or len(rows) > 2):
        caption = (
            "The best method by task and metric. No clear difference: within two standard errors of the "
            "best. An ensemble trains several models."
        )
        section.tables.append(Titled(caption, grid))
    if ranks is not None:
        caption = (
            "Average rank over data sets and shifts; 1 is best. In brackets: how many were averaged, those "
            "that all methods in the table share."
        )
        section.tables.append(Titled(caption, ranks))
        drawn = [c for c in ranks.columns if c.shift.endswith((":nll", ":auroc"))]
        figure = metric_bars(replace(ranks, columns=tuple(drawn)), materials[0].style, abreast=3)
        section.plots.append(
            Plot("ranks", figure, "Average ranks; lower is better.", "Bars of average ranks.")
        )
    return section


def _plots(parts: Sequence[Part]) -> Iterator[tuple[str, Plot]]:
    """Every figure with the name of its file."""
    for part in parts:
        for section in part.sections:
            for plot in section.plots:
                yield _slug(part.prefix + plot.name), plot


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _shape(table: Table | Grid) -> str:
    """CSS classes of a table, by its kind and size."""
    if isinstance(table, Confusion):
        return "confusion"
    if isinstance(table, Grid):
        return "grid"
    shapes = {"dense": len(table.columns) > 6, "wider": len(table.columns) > 11, "tall": len(table.rows) > 6}
    return " ".join(name for name, due in shapes.items() if due)


def _html(results: Mapping[str, Any], parts: Sequence[Part], words: Words, inlined: Inlined) -> str:
    return page_html(
        results.get("title") or "Results",
        results.get("summary") or "",
        next((part.verdict for part in parts if part.verdict and not part.title), ""),
        parts,
        inlined,
        words,
        results.get("run") or {},
    )


def page_html(
    title: str,
    summary: str,
    verdict: str,
    parts: Sequence[Part],
    inlined: Inlined,
    words: Words,
    run: Mapping[str, Any],
) -> str:
    """The page: `inlined` has the figures by their slugs, `words` is the glossary, `run` the provenance."""
    environment = Environment(
        loader=PackageLoader("sgpa.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        title=title,
        summary=summary,
        verdict=verdict,
        parts=parts,
        image=lambda part, plot: inlined.figures[_slug(part.prefix + plot.name)],
        letters=inlined.letters,
        styles=inlined.styles,
        rows=to_html,
        shape=_shape,
        slug=_slug,
        glossary=words,
        command=command(run),
        recipe=recipe(run),
        facts=facts(run),
    )


def _markdown(results: Mapping[str, Any], parts: Sequence[Part], words: Words) -> str:
    def figure(part: Part, plot: Plot) -> str:
        return f"![{plot.spoken}](figures/{_slug(part.prefix + plot.name)}.svg)\n\n*{plot.caption}*"

    blocks = [f"# {results.get('title') or 'Results'}", results.get("summary") or ""]
    for part in parts:
        level = "###" if part.title else "##"
        blocks += [f"## {part.title}" if part.title else "", part.verdict]
        blocks.append("\n".join(f"- **Warning**: {warning}" for warning in part.warnings))
        blocks.append("\n".join(f"- **Note**: {remark}" for remark in part.remarks))
        blocks.append("\n".join(f"- **{f.title}.** {' '.join(f.lines)}" for f in part.findings))
        for section in part.sections:
            blocks += [f"{level} {section.title}", section.intro]
            for titled in section.tables:
                blocks += [titled.caption.replace("*", "\\*"), to_markdown(titled.table).rstrip()]
            blocks += [figure(part, plot) for plot in section.plots]
            for gallery in section.galleries:
                lines = [f"- {c.text or 'picture'}: {c.answer}; {c.truth}" for c in gallery.cards]
                blocks += [f"**{gallery.title}.** {gallery.text}", "\n".join(lines)]
    entries = [(word.replace("*", "\\*"), meaning) for word, meaning in words]
    blocks += ["## Glossary", "\n".join(f"- **{word}**: {meaning}" for word, meaning in entries)]
    run = results.get("run") or {}
    if run:
        blocks += ["## Provenance", "\n".join(f"- {name}: {text}" for name, text in facts(run))]
        if commands := command(run):
            blocks.append(f"```\n{commands}\n```")
    return "\n\n".join(block for block in blocks if block) + "\n"
