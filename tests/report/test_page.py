"""The report of invented results: its contents, what it leaves out, and how a browser shows it."""

import copy
import io
import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from sgpa.core.errors import InputError
from sgpa.evaluation import metrics
from sgpa.report import aggregate, evaluation_table, to_html, to_markdown, to_rich, write_report
from sgpa.report.figures.curves import history, pool_reliability
from sgpa.report.figures.style import LOOKS, OTHERS, looks
from sgpa.report.names import is_ensemble, key_order, labels, shift_name, split_shift
from sgpa.report.sections.findings import findings, verdict
from support.browser import CHROMIUM, Browser
from support.fake_results import record, synthetic
from support.paths import ROOT

pytestmark = pytest.mark.xdist_group("report")  # in one process: the tests share a page


class Page(HTMLParser):
    """Ids, links, headings and figures of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.headings: list[str] = []
        self.tags: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self._in_heading = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self._in_heading = tag == "h2" or given.get("class") == "section"
        self.ids += [v for k, v in attrs if k == "id" and v]
        self.links += [v for k, v in attrs if k in ("src", "href", "xlink:href", "srcset", "action") and v]
        if given.get("role") == "img":
            self.images.append(given)

    def handle_data(self, data: str) -> None:
        if self._in_heading:
            self.headings.append(data)
            self._in_heading = False


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(synthetic(), tmp_path_factory.mktemp("report"))


def test_aggregation_by_hand() -> None:
    cells = aggregate([record("mle", "nll", v, s) for s, v in enumerate((1.0, 2.0, 6.0))])
    (cell,) = cells.values()
    assert cell.mean == pytest.approx(3.0)
    assert cell.error == pytest.approx(np.sqrt((4 + 1 + 9) / 2 / 3))
    assert cell.n == 3


def test_null_and_nan_values_are_ignored() -> None:
    values = (record("mle", "nll", 1.0, 0), record("mle", "nll", None, 1), record("mle", "nll", np.nan, 2))
    (cell,) = aggregate(values).values()
    assert (cell.mean, cell.error, cell.n) == (1.0, None, 1)


def test_bad_records_raise() -> None:
    with pytest.raises(InputError, match="two values of nll for mle"):
        aggregate([record("mle", "nll", 1.0), record("mle", "nll", 2.0)])
    with pytest.raises(InputError, match=r"nll of mle is 1e\+300; the results were damaged"):
        aggregate([record("mle", "nll", 1e300)])
    with pytest.raises(InputError, match="lacks dataset"):
        write_report({"schema": 1, "records": [{"metric": "nll"}]}, Path("nowhere"))
    with pytest.raises(InputError, match="lacks seed"):
        aggregate([{k: v for k, v in record("mle", "nll", 1.0).items() if k != "seed"}])


SMALL = [
    *(record("mle", "accuracy", v, s) for s, v in enumerate((0.90, 0.92))),
    *(record("sgpa", "accuracy", v, s) for s, v in enumerate((0.80, 0.82))),
    *(record("sgpa", "nll", v, s) for s, v in enumerate((0.25, 0.25))),
    record("mle", "nll", 0.5),
    record("de", "nll", 0.25),
]


def test_markdown_table() -> None:
    table = evaluation_table(aggregate(SMALL), "in-distribution")
    assert to_markdown(table).splitlines() == [
        "| Method | Accuracy (%) ↑ | NLL (nats) ↓ |",
        "| :-- | --: | --: |",
        "| MLE | **91.00** ± 1.00 | 0.500 |",
        "| SGPA | 81.00 ± 1.00 | **0.250** ± 0.000 |",
        "| Deep ensemble | – | **0.250** |",
    ]


def test_terminal_and_html_tables_hold_the_same_numbers() -> None:
    table = evaluation_table(aggregate(SMALL), "in-distribution")
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(to_rich(table, "Digits"))
    rows = str(to_html(table)).replace("\N{NO-BREAK SPACE}", " ")
    for text in ("91.00", "81.00", "± 1.00", "0.500", "Deep ensemble", "Accuracy (%) ↑", "–"):
        assert text in console.export_text(clear=False)
        assert text in rows
    assert "<strong>91.00</strong>" in rows


def test_many_methods_are_rows_in_a_narrow_terminal() -> None:
    methods = ("mle", "ts", "mfvi", "mcd", "kflla", "sngp", "sgpa", "de", "sgpae")
    records = [record(m, metric, 0.5 + i / 100) for i, m in enumerate(methods) for metric in ("nll", "ece")]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(to_rich(evaluation_table(aggregate(records), "in-distribution"), "Digits"))
    text = console.export_text()
    for name in ("Digits", "Temperature scaling", "KFAC Laplace", "SGPA ensemble", "0.580", "NLL (nats) ↓"):
        assert name in text
    assert "…" not in text


def test_attention_is_named_only_where_it_differs() -> None:
    assert labels([("kernel", "mle"), ("kernel", "sgpa")])["kernel", "sgpa"] == "SGPA"
    assert labels([("kernel", "mle"), ("sdp", "mle")])["sdp", "mle"] == "MLE (dot-product)"
    assert looks([("kernel", "mle"), ("sdp", "mle")])["sdp", "mle"].hollow


def test_looks_differ_without_colour() -> None:
    for some in (LOOKS.values(), OTHERS):
        for part in ("colour", "marker", "dash", "hatch"):
            assert len({getattr(look, part) for look in some}) == len(some)
    assert not {look.marker for look in LOOKS.values()} & {look.marker for look in OTHERS}


def test_unknown_methods_have_looks_of_their_own() -> None:
    rows = [("kernel", name) for name in ("mle", "mine", "yours")]
    style = looks(rows)
    assert style["kernel", "mine"] == OTHERS[0]
    assert style["kernel", "yours"] == OTHERS[1]


def test_variants_have_their_own_names_and_looks() -> None:
    rows = [("kernel", f"sgpa:{name}") for name in "abc"] + [("kernel", "mle"), ("kernel", "de:small")]
    assert [labels(rows)[row] for row in rows[:2]] == ["SGPA (a)", "SGPA (b)"]
    assert key_order(rows) == [rows[3], *rows[:3], rows[4]]
    style = looks(rows)
    assert style[rows[0]] == LOOKS["sgpa"]
    assert len({look.colour for look in style.values()}) == len(rows)
    assert is_ensemble("de:small")
    many = [("kernel", f"sgpa:{i}") for i in range(20)]
    assert set(looks(many)) == set(many)


def test_shift_names() -> None:
    assert split_shift("digits-noise:3") == ("digits-noise", 3)
    assert split_shift("photo-patches") == ("photo-patches", None)
    assert shift_name("digits-noise:3") == "digits noise, strength 3"


def test_pooled_reliability_equals_that_of_all_answers() -> None:
    rng = np.random.default_rng(0)
    sets = []
    for n in (40, 200):
        logits = 2 * rng.normal(size=(n, 4))
        sets.append((np.exp(logits) / np.exp(logits).sum(1, keepdims=True), rng.integers(4, size=n)))
    pooled = pool_reliability([{"data": metrics.reliability(*s).as_dict()} for s in sets])
    p, y = (np.concatenate(parts) for parts in zip(*sets, strict=True))
    whole = metrics.reliability(p, y)
    np.testing.assert_array_equal(pooled.count, whole.count)
    np.testing.assert_allclose(pooled.accuracy, whole.accuracy)
    np.testing.assert_allclose(pooled.confidence, whole.confidence)


def test_history_skips_nulls_and_uneven_lengths() -> None:
    seeds = [{"data": {"nll": [1.0, None, 3.0]}}, {"data": {"nll": [3.0, 2.0]}}, {"data": {}}]
    line = history(seeds, "nll")
    assert line is not None
    assert line.mean.tolist() == [2.0, 2.0]
    assert line.error.tolist() == [1.0, 0.0]
    assert history([{"data": {"nll": [None, None]}}], "nll") is None


def sentences(*values: tuple[str, list[float]], metric: str = "nll", **where: str) -> str:
    cells = aggregate([record(m, metric, v, s, **where) for m, vs in values for s, v in enumerate(vs)])
    all_findings = findings(cells)
    text = " ".join(line for f in all_findings for line in f.lines) + " " + verdict(all_findings, cells)
    return text.replace("\N{NO-BREAK SPACE}", " ")


def test_findings_follow_the_numbers() -> None:
    good = sentences(("mle", [0.5, 0.51]), ("sgpa", [0.2, 0.21]))
    assert "SGPA has the lower NLL: 0.205 ± 0.005 against 0.505 ± 0.005 for MLE." in good
    assert (
        "Against MLE SGPA is better in 1 of 1 comparison, worse in 0 and not clearly different in 0." in good
    )
    assert "Worse" not in good
    assert "Not clearly" not in good
    bad = sentences(("mle", [0.2, 0.21]), ("sgpa", [0.5, 0.51]))
    assert "MLE has the lower NLL: 0.205 ± 0.005 against 0.505 ± 0.005 for SGPA." in bad
    assert "SGPA is better in 0 of 1 comparison, worse in 1" in bad
    assert "Worse than MLE: NLL on the clean test set." in bad
    close = sentences(("mle", [0.2, 0.6]), ("sgpa", [0.3, 0.6]))
    assert "No clear difference in NLL: 0.400 ± 0.200 for MLE, 0.450 ± 0.150 for SGPA." in close
    assert "better in 0 of 1 comparison, worse in 0 and not clearly different in 1" in close
    assert "Not clearly different from MLE: NLL on the clean test set." in close
    assert "MLE and SGPA have the same NLL: 0.200." in sentences(("mle", [0.2]), ("sgpa", [0.2]))
    single = sentences(("mle", [0.2]), ("sgpa", [0.3]))
    assert "All numbers come from one seed: they have no error bars." in single
    chance = "one seed cannot show which differences are due to chance."
    assert f"Against MLE SGPA has the better value in 0 of 1 comparison; {chance}" in single
    assert "clearly" not in single
    three = sentences(("mle", [0.2]), ("mcd", [0.1]), ("sgpa", [0.3]))
    assert "MC dropout has the best NLL: 0.100 against 0.300 for SGPA." in three
    assert f"Against the best other method SGPA has the better value in 0 of 1 comparison; {chance}" in three
    others = sentences(("mle", [0.2, 0.21]), ("mcd", [0.5, 0.51]))
    assert "On the clean test set, MLE is better in NLL." in others
    where = {"evaluation": "ood-detection", "shift": "photo-patches"}
    ood = sentences(("mle", [0.9]), ("sgpa", [0.8]), metric="auroc", **where)
    assert "A worse value than MLE: AUROC in detecting photo patches." in ood
    where = {"evaluation": "trust", "shift": "photo-patches"}
    detection = [record("mle", "auroc", 0.9, 0, evaluation="ood-detection", shift="photo-patches")]
    detection += [record(m, "novelty_auroc", v, 0, **where) for m, v in (("mle", 0.9), ("sgpa", 0.8))]
    told = verdict([], aggregate(detection))
    assert "A worse value than MLE: AUROC of novelty in detecting photo patches." in told


def test_sgpa_is_compared_with_the_methods_and_with_each_baseline() -> None:
    cells = {"mle": [0.5, 0.51], "sgpa": [0.2, 0.21], "logistic:pixels": [0.1, 0.1]}
    text = sentences(*cells.items())
    assert "SGPA has the lower NLL: 0.205 ± 0.005 against 0.505 ± 0.005 for MLE." in text
    assert (
        "Logistic regression (pixels) has the lower NLL: 0.100 ± 0.000 against 0.205 ± 0.005 for SGPA."
        in text
    )
    assert "Against MLE SGPA is better in 1 of 1 comparison" in text
    assert "Against logistic regression (pixels) SGPA is better in 0 of 1 comparison, worse in 1" in text
    assert "Worse than logistic regression (pixels): NLL on the clean test set." in text


def test_page_has_every_section_and_figure(report: Path) -> None:
    page = Page(report.read_text("utf-8"))
    assert page.headings == [
        "Results",
        "Calibration",
        "Robustness",
        "Out-of-distribution detection",
        "Example predictions",
        "Training and posterior collapse",
        "Glossary",
        "Provenance",
    ]
    stems = {path.stem for path in (report.parent / "figures").glob("*.svg")}
    assert stems == {
        "metrics",
        "reliability",
        "reliability-digits-noise",
        "risk-coverage",
        "robustness-digits-noise",
        "robustness-digits-rotation",
        "entropy-photo-patches",
        "examples",
        "training",
        "layers-kernel-sgpa",
    }
    assert stems == {path.stem for path in (report.parent / "figures").glob("*.pdf")}
    assert len(page.images) == page.tags.count("figcaption") == len(stems)
    assert page.tags.count("svg") == len(stems) + 1  # and the letters all of them share
    assert all(image["aria-label"] for image in page.images)
    text = report.read_text("utf-8")
    for word in ("sgpa demo --seeds 3", "0123abc", "2 min 10 s", "&#34;width&#34;: 64", "Mutual information"):
        assert word in text


def test_page_is_self_contained(report: Path) -> None:
    text = report.read_text("utf-8")
    page = Page(text)
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert not re.search(r"url\((?!#)|@import|<script|<link", text)
    assert not re.search(r"https?://", re.sub(r'xmlns(:\w+)?="[^"]*"', "", text))


def test_ids_are_unique_and_links_resolve(report: Path) -> None:
    text = report.read_text("utf-8")
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    targets = {link[1:] for link in page.links if link.startswith("#")} | set(
        re.findall(r"url\(#([^)]+)\)", text)
    )
    assert targets <= set(page.ids)


def test_markdown_report(report: Path) -> None:
    text = (report.parent / "report.md").read_text("utf-8")
    assert text.startswith("# Handwritten digits\n")
    assert "| MLE |" in text
    assert "Clean test set: NLL (nats) ↓" in text
    for link in re.findall(r"\]\((figures/[^)]+)\)", text):
        assert (report.parent / link).exists()


def test_same_results_give_the_same_files(report: Path, tmp_path: Path) -> None:
    again = write_report(synthetic(), tmp_path / "all", pdf=False)
    assert again.read_text("utf-8") == report.read_text("utf-8")
    for path in (report.parent / "figures").glob("*.svg"):
        assert path.read_bytes() == (again.parent / "figures" / path.name).read_bytes()
    one_figure = {"schema": 1, "records": [record("mle", "nll", 0.3), record("sgpa", "nll", 0.2)]}
    first, second = (write_report(one_figure, tmp_path / name).parent / "figures" for name in "ab")
    assert (first / "metrics.pdf").read_bytes() == (second / "metrics.pdf").read_bytes()


def test_text_is_escaped(tmp_path: Path) -> None:
    results = synthetic(seeds=(0,))
    results |= {"title": "<script>alert(1)</script> & more", "curves": []}
    results["records"] = [
        r | {"method": "<b>x</b>"} if r["method"] == "mle" else r for r in results["records"]
    ]
    text = write_report(results, tmp_path, pdf=False).read_text("utf-8")
    assert "<script" not in text
    assert "<b>x" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in text


def test_sections_without_data_are_left_out(tmp_path: Path) -> None:
    only = {"schema": 1, "title": "", "summary": "", "records": [record("mle", "nll", 0.3)]}
    page = Page(write_report(only, tmp_path / "a").read_text("utf-8"))
    assert page.headings == ["Results", "Glossary"]
    assert [path.name for path in (tmp_path / "a" / "figures").glob("*.svg")] == ["metrics.svg"]

    results = copy.deepcopy(synthetic(seeds=(0,)))
    results["records"] = [
        r for r in results["records"] if not (r["method"] == "mle" and r["metric"] == "ece")
    ]
    results["run"] = {"command": "sgpa demo"}
    for curve in results["curves"]:
        if curve["kind"] == "training":
            curve["data"] = {"nll": [None, 1.0, 0.5]}
    page = Page(write_report(results, tmp_path / "b", pdf=False).read_text("utf-8"))
    assert "Training and posterior collapse" in page.headings
    assert not list((tmp_path / "b" / "figures").glob("layers*"))
    assert "| – |" in (tmp_path / "b" / "report.md").read_text("utf-8")


def test_several_tasks_get_their_own_parts(tmp_path: Path) -> None:
    results = synthetic(seeds=(0,)) | {"curves": []}
    results["records"] += [r | {"dataset": "letters"} for r in results["records"]]
    results["records"] += [r | {"attention": "sdp"} for r in results["records"] if r["method"] == "mle"]
    page = Page(write_report(results, tmp_path, pdf=False).read_text("utf-8"))
    assert page.headings.count("Robustness") == 2
    assert {"Handwritten digits", "letters"} <= set(page.headings)
    assert len(page.ids) == len(set(page.ids))
    assert "MLE (dot-product)" in (tmp_path / "report.md").read_text("utf-8")


@pytest.mark.slow
def test_fourteen_methods_fit_on_a_page(tmp_path: Path) -> None:
    page = Page(write_report(synthetic((*LOOKS, "new-method"), (0,)), tmp_path, pdf=False).read_text("utf-8"))
    assert len(page.images) == 16  # with four further figures of examples, detection bars and ranks
    assert "new-method" in (tmp_path / "report.md").read_text("utf-8")


def test_warnings_are_shown_on_the_page(tmp_path: Path) -> None:
    records = [record("mle", "nll", 0.3, 0), record("mle", "nll", 0.3, 1), record("sgpa", "nll", 0.2)]
    page = write_report({"schema": 1, "records": records}, tmp_path, pdf=False)
    assert '<p class="warning"><strong>Warning</strong> Seeds differ: 0 and 1 for MLE' in page.read_text(
        "utf-8"
    )
    assert "- **Warning**: Seeds differ" in (tmp_path / "report.md").read_text("utf-8")


def test_sparse_bins_are_marked(report: Path) -> None:
    assert "Grey crosses: bins of fewer than 20 answers." in report.read_text("utf-8")


def test_every_file_of_the_report_is_in_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["sgpa"]
    package = ROOT / "src" / "sgpa"
    files = [path.relative_to(package) for path in (package / "report").rglob("*") if path.is_file()]
    data = [file for file in files if file.suffix not in (".py", ".pyc")]
    assert {"page.html.j2", "look.html.j2", "paper_results.csv"} <= {file.name for file in data}
    assert [file for file in data if not any(file.match(pattern) for pattern in patterns)] == []


@pytest.mark.parametrize(
    ("results", "words"),
    [({}, "schema None"), ({"schema": 2}, "schema 2"), ({"schema": 1, "records": []}, "no records")],
)
def test_unreadable_results_raise(results: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        write_report(results, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine to open the page with")
@pytest.mark.parametrize("width", [1280, 390])
def test_browser_opens_the_page(report: Path, tmp_path: Path, width: int) -> None:
    with Browser(tmp_path / "profile") as browser:
        browser.open(report.as_uri(), width)
        assert browser.complaints == []
        assert {url for url in browser.requests if not url.startswith("data:")} == {report.as_uri()}
        assert browser.ask("document.documentElement.scrollWidth") == width
        picture = browser.picture(tmp_path / "page.png", height=1600)
    with Image.open(picture) as image:
        low, high = image.convert("L").getextrema()
    assert high - low > 100


def test_values_logged_every_few_epochs_make_a_line():
    curve = {"data": {"epoch": [1, 2, 3, 4], "validation": [None, 0.5, None, 0.3]}}
    line = history([curve, curve], "validation")
    assert line is not None
    assert line.x.tolist() == [2, 4]
    assert line.mean.tolist() == [0.5, 0.3]


def test_a_section_says_how_much_of_what_is_wrong_or_unfamiliar_is_refused(tmp_path):
    results = synthetic() | {"curves": []}
    first = results["records"][0]
    shares = [("", "trusted_right", 0.82), ("", "trusted_wrong", 0.3), ("svhn", "trusted_ood", 0.1)]
    results["records"] += [
        first | {"evaluation": "trust", "shift": shift, "metric": name, "value": value}
        for shift, name, value in shares
    ]
    html = write_report(results, tmp_path, pdf=False).read_text("utf-8")
    assert "Which answers to trust" in html
    refused = "70\N{NO-BREAK SPACE}% of the wrong answers and 90\N{NO-BREAK SPACE}% of SVHN"
    assert f"{refused} are marked as not trusted" in html
