"""Nothing in the package runs what it reads, and a page made from hostile names runs nothing."""

import ast
import json

import pytest

from sgpa.report import write_report
from support.browser import CHROMIUM, Browser
from support.fake_results import synthetic
from support.paths import ROOT

MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "code"}
CALLS = {"eval", "exec", "compile", "__import__", "system", "popen", "execfile"}
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TORCH = {"torch.compile"}  # compiles graphs, not text


def forbidden(tree):
    """What a parsed file must not contain, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, a.name) for a in node.names if a.name.split(".")[0] in MODULES)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            yield node.lineno, node.module
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        last = name.rsplit(".", 1)[-1]
        method_of_object = "." in name and last in ("eval", "exec", "compile")  # model.eval(), re.compile()
        if last in CALLS and not method_of_object and name not in TORCH:
            yield node.lineno, name
        if name in ("torch.load", "pickle.load", "yaml.load", "np.fromfile"):
            yield node.lineno, name
        options = {k.arg: ast.unparse(k.value) for k in node.keywords}
        if options.get("shell", "False") != "False" or options.get("allow_pickle", "False") != "False":
            yield node.lineno, f"{name}(shell or allow_pickle)"
        if name in ("np.load", "numpy.load") and options.get("allow_pickle") != "False":
            yield node.lineno, f"{name} without allow_pickle=False"


def test_nothing_is_unpickled_evaluated_or_given_to_a_shell():
    forbidden_calls = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in SOURCES
        for line, what in forbidden(ast.parse(path.read_text("utf-8")))
    ]
    assert len(SOURCES) > 100
    assert forbidden_calls == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from yaml import load",
        "eval(text)",
        "exec(text)",
        "os.system(text)",
        "subprocess.run(text, shell=True)",
        "torch.load(path)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "__import__(name)",
    ],
)
def test_the_search_finds_what_it_looks_for(source):
    assert list(forbidden(ast.parse(source)))


HOSTILE = (
    "<script>window.hit = 1</script>",
    '"><img src=x onerror="window.hit = 1">',
    "'><svg onload='window.hit=1'>",
    "javascript:window.hit=1",
    "</style><script>window.hit = 1</script>",
    "</text></svg><script>window.hit = 1</script>",
    "<!--",
    "{{ 7 * 7 }}{% raw %}",
    "]]><script>window.hit=1</script>",
    "C1=CC=C(<iframe srcdoc='<script>parent.hit=1</script>'>)C=C1",
    "a\u202eb\u0000c",
)


def hostile_results():
    """Results in which every name and text is hostile."""
    results = synthetic(("mle", "sgpa"), (0,))
    text = json.dumps(results)
    for i, word in enumerate(
        ("Handwritten digits", "photo-patches", "digits-noise", "digit, noise 0", "sgpa demo")
    ):
        text = text.replace(json.dumps(word)[1:-1], json.dumps(HOSTILE[i])[1:-1])
    results = json.loads(text)
    for record in (*results["records"], *results["curves"]):
        record["dataset"] = HOSTILE[5]
        record["method"] = HOSTILE[6] + HOSTILE[0] if record["method"] == "mle" else HOSTILE[1]
    results["summary"] = " ".join(HOSTILE)
    results["run"] |= {
        "recipe": {HOSTILE[0]: HOSTILE[2], "texts": list(HOSTILE), "smiles": HOSTILE[9]},
        "hardware": HOSTILE[3],
        "versions": {HOSTILE[1]: HOSTILE[4]},
        "command": "; ".join(HOSTILE),
    }
    return results


COUNT = "[...document.querySelectorAll('*')].filter(e => %s).length"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:constrained_layout not applied")  # the names leave no room for axes
def test_a_page_of_hostile_names_and_texts_runs_nothing(tmp_path):
    page = write_report(hostile_results(), tmp_path / "report", pdf=False)
    text = page.read_text("utf-8")
    assert "<script" not in text.lower()
    assert "49" not in text or "{{ 7 * 7 }}" in text
    assert all(path.is_relative_to(tmp_path) for path in tmp_path.rglob("*"))
    if CHROMIUM is None:
        pytest.skip("no browser on this machine: the text was searched only")
    with Browser(tmp_path / "profile") as browser:
        browser.open(page.as_uri())
        assert browser.ask("window.hit") is None
        assert browser.ask("document.scripts.length") == 0
        assert browser.ask("document.querySelectorAll('iframe, object, embed, link').length") == 0
        assert browser.ask(COUNT % "[...e.attributes].some(a => a.name.startsWith('on'))") == 0
        assert browser.ask(COUNT % "/^(javascript|data:text)/i.test(e.href || e.src || '')") == 0
        assert [url for url in browser.requests if not url.startswith("data:image/")] == [page.as_uri()]
        assert browser.complaints == []
