"""The commands about recipes, from the list of recipes to the report, and their error messages."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import typer.main

from sgpa.cli.app import app, help_of
from sgpa.cli.predict import predict
from sgpa.core.names import METHOD_NAMES, RECIPE_NAMES, method_id
from sgpa.experiments.recipes import RECIPES, alternatives
from sgpa.methods import CATALOGUE
from support import hub
from support.terminal import sgpa

EPOCHS = [f"{part}.epochs=1" for part in ("optim", "stage1", "stage2")]
SMALL = ["model.depth=1", "model.width=16", "model.heads=2", "sgpa.attention.num_global=2"]
QUICK = ["evaluation.rows=40", "evaluation.ood_rows=40", "ensemble=2", "ensembles=1"]
TINY = [word for setting in (*EPOCHS, *SMALL, *QUICK) for word in ("--set", setting)]


def commands(command=None, path=()):
    command = command or typer.main.get_command(app)
    yield path
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from commands(child, (*path, name))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with one trained and tested cell."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    trained = sgpa("train", "digits", "--method", "sgpa", "--out", folder, *TINY)
    assert trained.code == 0, trained.err
    assert f"Run: {folder / 'cells' / 'kernel-sgpa-0'}" in trained.out
    assert "KL_g" in trained.err
    assert "ms/step" in trained.err
    tested = sgpa("evaluate", folder / "cells" / "kernel-sgpa-0")
    assert tested.code == 0, tested.err
    assert "Accuracy (%)" in tested.out
    return folder


@pytest.fixture
def copy(run, tmp_path):
    """A copy of it that a test may change."""
    return shutil.copytree(run, tmp_path / "digits")


@pytest.fixture
def no_page(monkeypatch):
    """Do not draw the report, which takes seconds; keep its results."""
    written = []

    def write(results, directory):
        written.append(results)
        return directory / "report.html"

    monkeypatch.setattr("sgpa.report.write_report", write)
    return written


def files(folder):
    """Everything below a folder, with its content."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_every_help_ends_in_an_example(path):
    shown = sgpa(*path, "--help")
    assert shown.code == 0
    last = shown.out.strip().splitlines()[-1].strip()
    assert last.startswith(f"Example: sgpa {' '.join(path)}".strip())


def test_help_does_not_import_torch():
    code = "import sys, sgpa.cli.app; assert not {'torch', 'numpy', 'pyarrow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_lists_of_names_are_complete():
    assert tuple(RECIPES) == RECIPE_NAMES
    assert list(METHOD_NAMES) == list(CATALOGUE)
    assert {name.id for name in METHOD_NAMES.values() if name.ensemble} == {"de", "sgpae"}


@pytest.mark.parametrize(
    ("alias", "method"),
    [
        ("laplace", "kflla"),
        ("mc-dropout", "mcd"),
        ("ensemble", "de"),
        ("temperature", "ts"),
        ("SGPA", "sgpa"),
    ],
)
def test_methods_have_readable_aliases(alias, method):
    assert method_id(alias) == method


def test_recipes_are_listed_and_shown():
    table = sgpa("recipes")
    assert table.code == 0
    assert all(name in table.out for name in RECIPES)
    listed = json.loads(sgpa("recipes", "--json").out)
    assert [recipe["name"] for recipe in listed] == list(RECIPES)
    assert listed[0]["epochs"] == 130
    one = sgpa("recipes", "cifar10").out
    for alternative in alternatives("cifar10"):
        assert " ".join(f"--set {setting}" for setting in alternative.set) in one
    assert "optim.epochs" in one
    zinc = json.loads(sgpa("recipes", "zinc", "--json").out)
    assert zinc["settings"]["optim.epochs"] == 300
    assert {"field", "chosen", "other", "set"} <= set(zinc["alternatives"][0])
    assert "did you mean" in sgpa("recipes", "cifar").complaint


@pytest.mark.parametrize("width", [40, 80])
def test_methods_are_listed(width, monkeypatch):
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((width, 24)))
    listing = sgpa("methods")
    assert listing.code == 0
    assert all(len(line) <= width for line in listing.out.splitlines())
    text = " ".join(listing.out.split())
    methods = {method["id"]: method for method in json.loads(sgpa("methods", "--json").out)}
    assert list(methods) == list(CATALOGUE)
    assert methods["ts"]["after"] == "mle"
    assert methods["sgpa"]["after"] is None
    assert not methods["sngp"]["regression"]
    assert methods["de"]["models"] == 5
    for method in methods.values():  # nothing is cut
        assert f"{method['id']}, {method['name']}: {method['what']} " in text
        assert all(alias in text for alias in method["aliases"])


@pytest.mark.slow
def test_a_finished_cell_is_neither_trained_nor_tested_again(copy):
    again = sgpa("train", "digits", "--method", "sgpa", "--out", copy, *TINY)
    assert again.code == 0
    assert "trained before" in again.err
    assert "nll" not in again.err
    cell = copy / "cells" / "kernel-sgpa-0"
    before = files(cell)
    records = json.loads(sgpa("evaluate", cell, "--json").out)
    evaluations = {record["evaluation"] for record in records}
    assert evaluations == {"in-distribution", "robustness", "ood-detection", "trust"}
    assert files(cell) == before
    anew = sgpa("evaluate", cell, "--json", "--again")
    assert json.loads(anew.out) == records
    assert "clean data" in anew.err


@pytest.mark.slow
def test_members_of_an_ensemble_are_trained_and_read(copy):
    trained = sgpa("train", "digits", "--method", "ensemble", "--seed", 1, "--out", copy, *TINY)
    assert trained.code == 0, trained.err
    names = {path.name for path in (copy / "trainings").iterdir()}
    assert {"kernel-mle-2", "kernel-mle-3"} <= names
    assert sgpa("evaluate", copy / "cells" / "kernel-de-1").code == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["train", "cifar", "--method", "sgpa"], "unknown recipe 'cifar'; did you mean cifar10 or cifar100"),
        (["train", "image", "photos"], "did you mean images"),
        (["train", "digits", "--method", "spga"], "unknown method 'spga'; did you mean sgpa"),
        (["train", "digits", "--method", "sgpa", "--attention", "sdp"], "needs a kernel"),
        (["train", "digits", "--attention", "linear"], "attention='linear' (allowed: kernel, sdp)"),
        (["train", "digits", "--set", "optim.epoch=3"], "did you mean epochs"),
        (["train", "digits", "--set", "warm.epochs=1"], "warm is called stage1 now"),
        (["train", "digits", "--set", "optim.epochs"], "not of the form field=value"),
        (["train", "digits", "--set", "optim.epochs=many"], "expected a whole number"),
        (["train", "digits", "--set", "optim.epochs=-1"], "epochs=-1 (allowed: 1 to 1000000)"),
        (["train", "digits", "--set", "sgpa.attention.kernel.preset=paper"], "set kernel.name"),
        (["train", "digits", "--set", "name=mine"], "name cannot be set"),
        (["train", "digits", "--device", "tpu"], "device='tpu' (allowed: cpu"),
        (["train", "zinc", "--method", "ts"], "ts predicts classes, and zinc asks for numbers"),
        (["train", "imdb", "--method", "de"], "a split of its own"),
        (["train", "digits", "--method", "mcd", "--set", "model.dropout=0"], "dropout=0.0 (allowed: above 0"),
        (["train", "cifar10", "--data-dir", "nowhere"], "no train files in nowhere"),
        (["data", "corrupt", "svhn"], "'svhn' has no corrupted set; choose cifar10 or cifar100"),
        (["data", "corrupt", "cifar10", "--data-dir", "nowhere"], "no test files in nowhere"),
        (["benchmark", "cifar"], "unknown recipe 'cifar'; did you mean"),
        (["benchmark", "digits", "--methods", "mle,foo"], "unknown method 'foo'"),
        (["benchmark", "digits", "--methods", "sgpa", "--attentions", "sdp"], "nothing to run"),
        (["benchmark", "digits", "--attentions", "kernel,foo"], "attention='foo'"),
        (["demo", "--methods", "foo"], "unknown method 'foo'"),
        (["evaluate", "nowhere"], "nowhere is not a folder"),
        (["report", "nowhere"], "nowhere does not exist"),
        (["report", "."], "holds no results"),
        (["time", "--model", "imdb"], "unknown model 'imdb'"),
        (["bench"], "`sgpa bench` is called `sgpa time` now"),
        (["data", "language-model", "--data-dir", "nowhere"], "no train files in nowhere"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    assert complaint in sgpa(*arguments).complaint
    assert not files(tmp_path)


def test_missing_arguments_are_errors():
    assert sgpa("report").code == 2
    assert sgpa("train", "digits", "--seed", "-1").code == 2
    assert sgpa("fly").code == 2


@pytest.mark.parametrize(
    ("recipe", "complaint"),
    [("zinc", "holds runs of recipe digits, not of zinc"), ("digits", "model.depth is 1 there and 2 now")],
)
def test_a_folder_belongs_to_one_recipe_with_one_setting(run, recipe, complaint):
    before = files(run)
    for command in ("train", "benchmark"):
        assert complaint in sgpa(command, recipe, "--out", run).complaint
    assert files(run) == before


def test_folders_without_a_finished_run_are_refused(run, tmp_path):
    assert sgpa("evaluate", run).code == 0  # its only cell
    assert "no run.json" in sgpa("evaluate", run / "trainings" / "kernel-sgpa-0").complaint
    (tmp_path / "run.json").write_text("[")
    assert "does not describe a run" in sgpa("evaluate", tmp_path).complaint


@pytest.mark.slow
def test_failed_jobs_are_listed_and_the_others_run(tmp_path, no_page, caplog):
    settings = [
        *TINY,
        "--set",
        "model.dropout=0",
        "--set",
        "sgpa.dropout_at_prediction=true",
    ]  # impossible without dropout
    command = ["benchmark", "digits", "--methods", "mle,sgpa", "--seeds", 1, "--out", tmp_path, *settings]
    outcome = sgpa(*command)
    assert outcome.code == 1
    assert "failed: kernel-sgpa-0: sgpa: dropout_at_prediction=True" in outcome.err
    assert "MLE" in outcome.out
    assert {record["method"] for record in no_page[0]["records"]} == {"mle"}
    again = sgpa(*command)
    assert again.code == 1
    assert "failed before and is not run again" in caplog.text
    caplog.clear()
    retried = sgpa(*command, "--retry")
    assert retried.code == 1
    assert "failed before" not in caplog.text
    pages = len(no_page)
    assert sgpa(*command[:3], "sgpa", *command[4:]).code == 1  # nothing to report on
    assert len(no_page) == pages


@pytest.mark.slow
def test_a_report_covers_the_cells_of_all_commands(copy, tmp_path, no_page):
    done = sgpa("benchmark", "digits", "--methods", "mle,ts", "--seeds", 1, "--out", copy, *TINY)
    assert done.code == 0, done.err
    assert "Temperature scaling" in done.out
    assert "SGPA" not in done.out
    shown = sgpa("report", copy)
    assert shown.code == 0
    assert "SGPA" in shown.out
    cells = [copy / "cells" / "kernel-mle-0", copy / "cells" / "kernel-ts-0" / "results.json"]
    some = sgpa("report", *cells, "--out", tmp_path / "some")
    assert some.code == 0, some.err
    assert "digits: mle, ts" in some.out
    assert {timing["method"] for timing in no_page[-1]["run"]["timings"]} == {"mle", "ts"}
    twice = sgpa("report", copy, cells[0], "--out", tmp_path / "twice").complaint
    assert "merge every cell once" in twice
    assert str(cells[0]) in twice
    assert len(no_page) == 3
    named = sgpa("report", copy, cells[0], "--names", "all,one", "--out", tmp_path / "named")
    assert named.code == 0, named.err
    assert "MLE (one)" in named.out
    assert "1 different names" in sgpa("report", copy, cells[0], "--names", "all").complaint
    alone = sgpa("report", cells[0], "--names", "alone", "--out", tmp_path / "alone")
    assert "MLE (alone)" in alone.out, alone.err


@pytest.mark.slow
@pytest.mark.usefixtures("no_pdf")
def test_a_report_is_a_page(run, tmp_path):
    assert sgpa("report", run, "--out", tmp_path / "page").code == 0
    assert (tmp_path / "page" / "report.html").stat().st_size > 10_000


def test_results_of_different_data_are_not_merged(run, copy, tmp_path):
    file = copy / "cells" / "kernel-sgpa-0" / "results.json"
    results = json.loads(file.read_text())
    for item in (*results["records"], *results["curves"]):
        item["seed"] = 1
    results["data"]["digits"] = "other"
    file.write_text(json.dumps(results))
    outcome = sgpa("report", run, copy, "--out", tmp_path / "both").complaint
    assert "use different data from the earlier results" in outcome
    assert not (tmp_path / "both").exists()


def test_an_interrupt_says_how_to_resume(tmp_path, monkeypatch):
    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("sgpa.training.trainer.Trainer.fit", stop)
    for command in ("train", "benchmark"):
        stopped = sgpa(command, "digits", "--out", tmp_path, *TINY)
        assert stopped.code == 130
        assert "re-run the same command to resume" in stopped.err
        assert "Traceback" not in stopped.err


def test_a_cluster_needs_ray(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    outcome = sgpa("benchmark", "digits", "--cluster", "auto", "--out", tmp_path, *TINY)
    assert "pip install ray" in outcome.complaint


def test_time_compares_four_methods():
    table = sgpa("time", "--model", "digits", "--repeats", 1)
    assert table.code == 0
    lines = [line for line in table.out.splitlines() if "MLE" in line or "dropout" in line or "SGPA" in line]
    assert len(lines) == 4


@pytest.mark.slow
def test_a_language_model_is_trained_once(tmp_path, monkeypatch):
    rng = pytest.importorskip("numpy").random.default_rng(0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for part in ("train", "test"):
        hub.texts(tmp_path / "data" / "imdb" / f"{part}-00000-of-00001.parquet", rng, 12)
    command = ["data", "language-model", "--data-dir", tmp_path / "data", "--epochs", 1, "--batch-size", 64]
    done = sgpa(*command)
    assert done.code == 0, done.err
    assert "held-out perplexity" in done.err
    folder = tmp_path / "cache" / "sgpa" / "language-model" / "imdb"
    assert (folder / "elmo.json").exists()
    assert (folder / "words.json").exists()
    again = sgpa(*command)
    assert again.code == 0
    assert "loss" not in again.err


def test_paragraphs_of_help_are_not_broken_where_the_source_is():
    text = help_of(predict)
    assert text.count("\n\n") == 1
    assert "\n" not in text.replace("\n\n", "")
