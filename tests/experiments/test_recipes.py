"""Every recipe builds, trains and is evaluated, on small made-up data in the layout of the real ones."""

import csv
from dataclasses import dataclass, field, replace
from importlib.resources import files

import pytest
import torch

from sgpa.core.errors import CheckpointError, ConfigError, InputError
from sgpa.core.files import read_json
from sgpa.core.inputs import Batch
from sgpa.core.types import Loss
from sgpa.data.language_model.model import ElmoConfig, ElmoModel
from sgpa.experiments.recipes import RECIPES, Recipe, alternatives, find, leaves, override, plan, plans
from sgpa.experiments.runner import RunFolder, benchmark
from sgpa.gp.objective import Progress, negative_elbo
from sgpa.inference.trust import TrustRule
from sgpa.methods import CATALOGUE, Ensemble, Mle
from sgpa.methods.base import Method
from sgpa.models import KernelAttentionConfig, Transformer
from sgpa.report import write_report
from sgpa.training.plan import plan_of
from support import hub
from support.open_runs import open_cell

PAPER = [name for name in RECIPES if name != "digits"]
QUICK = ["optim.epochs=1", "stage1.epochs=1", "stage2.epochs=1", "ensemble=2", "evaluation.severities=5"]
ROWS = ["evaluation.rows=20", "evaluation.ood_rows=20"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = hub.write_all(tmp_path_factory.mktemp("data"))
    model = ElmoModel(ElmoConfig(filters=((1, 4),), width=4, cell=8))
    model.save(root / "language-model")
    return root


@pytest.fixture(autouse=True)
def _small(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr("sgpa.data.texts.imdb.IMDB_SIZES", (24, 6, 10))
    monkeypatch.setattr("sgpa.data.texts.cola.COLA_TRAIN", 30)
    monkeypatch.setattr("sgpa.data.texts.cola.COLA_TEST", 10)
    monkeypatch.setattr("sgpa.data.texts.cola.WATCHED", 8)


KEY = ("dataset", "augmentation", "evaluation", "metric")


def records(outcome):
    return outcome.results["records"]


def settings(name, data):
    batch = {"imdb": 12, "cola": 15, "zinc": 10}.get(name, 9)
    chosen = [*QUICK, *(f"{part}.batch_size={batch}" for part in ("optim", "stage1", "stage2"))]
    if name.startswith("cifar"):
        chosen += ["evaluation.corruptions=contrast", "evaluation.rows=5", "evaluation.ood_rows=3"]
    if name == "imdb":
        chosen += ["task.vocabulary=300", "task.max_tokens=32"]
    if name == "cola":
        chosen += [f"task.language_model={data / 'language-model'}"]
    return chosen


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("method", ["mle", "sgpa"])
def test_the_models_of_every_recipe_compute_a_loss(tmp_path, data, name, method):
    run_folder = RunFolder.of(name, tmp_path, settings(name, data), data_dir=data)
    task, stage = run_folder.task(0), plan(run_folder.recipe, method).stages[-1]
    model = stage.method.build(stage.model(run_folder.model(task)))
    loss = stage.method.loss(model, next(task.splits.train.batches(2, 0)), Progress(0.5, 10))
    loss.total.backward()
    assert torch.isfinite(loss.total)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER)
def test_every_recipe_trains_two_steps_and_is_evaluated(tmp_path, data, name):
    """With one layer; every number that the paper's tables have for MLE and SGPA is measured."""
    run_folder = RunFolder.of(name, tmp_path, [*settings(name, data), "model.depth=1"], data_dir=data)
    outcome = benchmark(run_folder, plans(run_folder.recipe, ("mle", "sgpa")), seeds=1)
    assert not outcome.failures
    lines = (tmp_path / "trainings" / "kernel-sgpa-0" / "log.jsonl").read_text().splitlines()
    assert len(lines) == 1
    assert -(-len(run_folder.task(0).splits.train) // run_folder.recipe.stage2.batch_size) == 2
    recorded = {
        (*(r[name] for name in KEY), r["shift"].replace("-regenerated", "")) for r in records(outcome)
    }
    dataset, augmentation = run_folder.recipe.task.dataset, run_folder.recipe.task.augmentation
    with (files("sgpa.report") / "paper_results.csv").open() as file:
        published = [r for r in csv.DictReader(file) if r["dataset"] == dataset]
    wanted = {
        (*(r[name] for name in KEY), r["shift"])
        for r in published
        if r["method"] == "sgpa" and r["evaluation"] in ("in-distribution", "robustness", "ood-detection")
        if r["augmentation"] == augmentation and not r["shift"].endswith((":1", ":2", ":3", ":4"))
    }
    assert wanted
    assert wanted <= recorded


@pytest.mark.slow
@pytest.mark.parametrize("name", ["imdb", "cola", "zinc", "cifar10"])
def test_all_methods_of_a_task_run_with_both_attentions(tmp_path, data, name):
    small = ["model.depth=1", "model.width=16", "model.heads=2", "sgpa.attention.num_global=3"]
    small.append("sngp.head.features=8")
    run_folder = RunFolder.of(name, tmp_path, [*settings(name, data), *small], data_dir=data)
    every = plans(run_folder.recipe, attentions=("kernel", "sdp"))
    rows = [row for row in every if row.method.id != "posthoc"]  # needs ten held-out rows
    outcome = benchmark(run_folder, rows, seeds=1)
    assert not outcome.failures
    keys = {(r["attention"], r["method"]) for r in outcome.results["records"]}
    assert keys == {(row.attention, row.method.id) for row in rows}
    values = [r["value"] for r in outcome.results["records"] if r["metric"] == "nll"]
    assert all(value is not None and value < 1e3 for value in values)
    cell = tmp_path / "cells" / "kernel-sgpa-0"
    saved = read_json(cell / "run.json", dict)
    assert open_cell(cell, data_dir=data).rule == TrustRule.from_json(saved)
    assert saved["trust"]["max_uncertainty"] == saved["threshold"]


def test_cifar100_has_the_settings_that_were_best_on_validation_images():
    measured = override(
        find("cifar10"),
        [
            *("task.name=cifar100", "model.outputs=100", "model.depth=6", "model.width=256", "model.heads=8"),
            *("kernel.locality=1,1,1,1,2,2,3,3", "stage2_dropout=0.3", "stage2.epochs=100"),
        ],
    )
    assert find("cifar100") == replace(measured, name="cifar100")


def test_3_augment_has_one_recipe_for_both_data_sets():
    other = override(find("cifar10-augmented"), ["task.name=cifar100", "model.outputs=100"])
    assert find("cifar100-augmented") == replace(other, name="cifar100-augmented")


def test_methods_share_trainings(tmp_path):
    run_folder = RunFolder.of("digits", tmp_path)
    names = {t.name for row in plans(run_folder.recipe) for t in row.stages}
    assert names == {"mle", "warm", "sgpa", "mfvi", "sngp"}
    shared = {row.method.id: row.stages[-1].name for row in plans(run_folder.recipe)}
    assert {m for m, training in shared.items() if training == "mle"} == {
        *("mle", "ts", "vs", "ms", "kflla", "posthoc", "de", "mcd")
    }
    folders = {row.method.id: run_folder.model_folder(row, 0).name for row in plans(run_folder.recipe)}
    assert {m for m, folder in folders.items() if folder != "model"} == {"mcd"}
    assert folders["mcd"] == "model-mcd"


def test_sgpa_starts_from_the_mle_training_if_the_settings_are_equal():
    alike = replace(find("digits"), stage1=find("digits").optim)
    (first, second), (mle,) = plan(alike, "sgpa").stages, plan(alike, "mle").stages
    assert (first, second.name) == (mle, "sgpa")
    apart = replace(alike, stage1=replace(alike.optim, lr=2 * alike.optim.lr))
    assert plan(apart, "sgpa").stages[0].name == "warm"


@pytest.mark.slow
def test_stage2_for_all_gives_point_methods_a_second_stage(tmp_path):
    small = [*QUICK, *ROWS, "task.train=50", "model.depth=1", "model.width=8", "model.heads=2"]
    small += ["model.dropout=0.1", "sgpa.attention.num_global=2"]
    small += ["optim.select_every=1", "stage1.select_every=1"]  # stage 1 is then MLE's own training
    run_folder = RunFolder.of("digits", tmp_path, [*small, "stage2_for_all=true", "stage2_dropout=0.05"])
    rows = {name: plan(run_folder.recipe, name) for name in ("mle", "ts", "kflla", "de", "mcd", "sgpa")}
    names = {name: [training.name for training in row.stages] for name, row in rows.items()}
    ends = dict.fromkeys(rows, "mle-after") | {"mcd": "mcd-after", "sgpa": "sgpa"}
    assert names == {name: ["mle", end] for name, end in ends.items()}
    assert rows["mcd"].stages[0].extra_selectors == ()  # its epoch would not be used
    assert not benchmark(run_folder, list(rows.values()), seeds=1).failures
    rates = {
        name: Transformer.from_pretrained(run_folder.model_folder(row, 0)).config.dropout
        for name, row in rows.items()
    }
    assert rates == dict.fromkeys(rows, 0.05) | {"mcd": 0.1}
    with pytest.raises(ConfigError, match=r"stage2_dropout=1.0 \(allowed: 0 or more, below 1\)"):
        override(find("digits"), ["stage2_dropout=1.0"])


@pytest.mark.parametrize("name", RECIPES)
def test_alternatives_are_valid_settings(name):
    for alternative in alternatives(name):
        changed = override(find(name), alternative.set)
        assert changed != find(name), alternative.field
        assert isinstance(changed, Recipe)


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("optim.epoch=3", "did you mean epochs"),
        ("optimiser.epochs=3", "no field optimiser.epochs"),
        ("optim.epochs=-3", r"epochs=-3 \(allowed: 1 to 1000000\)"),
        ("optim.epochs=many", "expected a whole number"),
        ("optim.epochs=2.5", "expected a whole number"),
        ("optim.epochs", "not of the form field=value"),
        ("optim=3", "group of fields; set one of them: optim.epochs"),
        ("optim.epochs.more=3", "has no fields"),
        ("sgpa.kl.g=1/M", "a number or 1/N"),
        ("task.augment=maybe", "true or false"),
        ("methods=mle,magic", "allowed: mle, ts"),
        ("name.first=x", "name.first cannot be set|has no fields"),
        ("name=mine", "name cannot be set: choose another recipe"),
        (
            "model.attention.tied=false",
            "model.attention.tied cannot be set: choose the attention of the plan",
        ),
        ("ts.base.attention.tied=false", "cannot be set: it is the recipe's maximum-likelihood model"),
        ("sgpa.attention.kernel.preset=paper", "cannot be set: set kernel.name and kernel.preset"),
        ("warm.epochs=3", "warm is called stage1 now"),
    ],
)
def test_bad_settings_are_explained(setting, complaint):
    with pytest.raises(ConfigError, match=complaint):
        override(find("cifar10"), [setting])


def test_listed_settings_can_be_set_and_derived_ones_are_not_listed():
    listed = dict(leaves(find("cifar10")))
    assert {"optim.epochs", "sgpa.attention.num_global", "kernel.name", "model.depth"} <= set(listed)
    derived = ("name", "model.attention", "model.weights.", "model.head.", "sgpa.attention.kernel", "ts.base")
    assert not [path for path in listed if path.startswith(derived)]
    for path, value in listed.items():
        if isinstance(value, int | float | str):
            assert override(find("cifar10"), [f"{path}={value}"]) == find("cifar10"), path


def test_settings_reach_every_kind_of_field():
    recipe = override(
        find("cifar10"),
        [
            "optim.epochs=20",
            "optim.clip=1",
            "optim.weight_decay=0.1",
            "stage1.weight_decay=0.2",
            "stage2.weight_decay=0.3",
            "stage2.lr=1e-3",
            "sgpa.kl.a=1/N",
            "task.augment=true",
            "methods=mle,sgpa",
            "evaluation.severities=1,5",
            "evaluation.rows=none",
            "kernel.preset=paper",
            "kernel.locality=0.5,1,2,3e0",
        ],
    )
    assert recipe.optim.epochs == 20
    assert recipe.optim.clip == 1.0
    assert [o.weight_decay for o in (recipe.optim, recipe.stage1, recipe.stage2)] == [0.1, 0.2, 0.3]
    assert recipe.stage2.lr == 1e-3
    assert recipe.sgpa.kl.a == "1/N"
    assert recipe.task.augmentation == "three-augment"
    assert recipe.methods == ("mle", "sgpa")
    assert recipe.evaluation.severities == (1, 5)
    kernel = plan(recipe, "sgpa").method.attention.kernel
    assert (kernel.preset, kernel.locality) == ("paper", (0.5, 1.0, 2.0, 3.0))
    assert override(recipe, ["kernel.locality=[]"]).kernel.locality == ()


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: find("cifar11"), "did you mean cifar10"),
        (lambda: plan(find("cifar10"), "sgp"), "did you mean"),
        (lambda: plan(find("cifar10"), "sgpa", "sdp"), "needs a kernel"),
        (lambda: plan(find("cifar10"), "mle", "flash"), "kernel, sdp"),
        (lambda: plan(find("zinc"), "ts"), "asks for numbers"),
    ],
)
def test_bad_plans_are_explained(call, complaint):
    with pytest.raises(ConfigError, match=complaint):
        call()


def test_the_catalogue_is_complete():
    assert list(CATALOGUE) == [
        *("mle", "ts", "vs", "ms", "mfvi", "mcd", "kflla", "posthoc", "sngp", "sgpa", "sgpah", "de", "sgpae")
    ]
    classes = {name for name, method in CATALOGUE.items() if not method.regression}
    assert classes == {"ts", "vs", "ms", "kflla", "posthoc", "sngp", "sgpah"}
    for name, method in CATALOGUE.items():
        assert method.id == name
        assert isinstance(method, Ensemble) == (name in ("de", "sgpae"))


def test_the_error_about_a_missing_language_model_says_how_to_get_one(data):
    with pytest.raises(InputError, match=r"language-model.*task.language_model=none"):
        find("cola").task.load(0, data)


@pytest.mark.slow
def test_cola_trains_on_words_alone(tmp_path, data):
    chosen = [s for s in settings("cola", data) if "language_model" not in s]
    run_folder = RunFolder.of("cola", tmp_path, [*chosen, "task.language_model=none"], data_dir=data)
    assert not benchmark(run_folder, plans(run_folder.recipe, ("mle",)), seeds=1).failures


# ---- a tenth method, through the public contract --------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Smoothed(Method):
    """Label smoothing: part of the target goes to all classes alike."""

    share: float = 0.1
    attention: KernelAttentionConfig = field(default_factory=KernelAttentionConfig)

    id = "smoothed"

    def build(self, config) -> Transformer:
        return Transformer(replace(config, attention=self.attention))

    def loss(self, model: Transformer, batch: Batch, progress: Progress) -> Loss:
        del progress
        output = model(batch.inputs)
        sharp = negative_elbo(output, model.likelihood, batch.targets)
        even = -output.f.log_softmax(-1).mean()
        return replace(sharp, nll=(1 - self.share) * sharp.nll + self.share * even)


@pytest.mark.slow
def test_a_users_method_trains_and_appears_in_a_report(tmp_path):
    small = ["optim.epochs=15", "optim.lr=1e-2", "model.depth=1", "model.width=16", "model.heads=2"]
    run_folder = RunFolder.of("digits", tmp_path, [*small, "evaluation.rows=200", "evaluation.ood_rows=20"])
    rows = [plan(run_folder.recipe, "mle"), plan_of(Smoothed(), run_folder.recipe.optim)]
    outcome = benchmark(run_folder, rows, seeds=1)
    assert not outcome.failures
    page = write_report(outcome.results | {"curves": []}, tmp_path, pdf=False).read_text()
    assert "smoothed" in page
    accuracy = {
        r["method"]: r["value"]
        for r in outcome.results["records"]
        if r["metric"] == "accuracy" and r["evaluation"] == "in-distribution"
    }
    assert accuracy["smoothed"] > 0.2
    losses = {
        m: Smoothed().loss(m.build(run_folder.recipe.model), _batch(), Progress(0, 1))
        for m in (Mle(), Smoothed())
    }
    assert all(torch.isfinite(loss.total) for loss in losses.values())


def _batch():
    return Batch(torch.randn(4, 1, 8, 8), torch.arange(4))


def test_a_folder_of_another_recipe_is_refused_and_unchanged(tmp_path):
    RunFolder.of("digits", tmp_path, QUICK).claim()
    before = (tmp_path / "recipe.json").read_bytes()
    with pytest.raises(CheckpointError, match="recipe digits, not of cifar10"):
        RunFolder.of("cifar10", tmp_path).claim()
    with pytest.raises(CheckpointError, match=r"optim.epochs is 1 there and 400 now"):
        RunFolder.of("digits", tmp_path, QUICK[1:]).claim()
    RunFolder.of("digits", tmp_path, [*QUICK, "seeds=7"]).claim()  # the number of seeds may change
    assert (tmp_path / "recipe.json").read_bytes() == before
