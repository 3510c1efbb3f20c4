"""A user's own files: from a folder or a table to a trained model and a report."""

import csv
import json
import random
import shutil
from dataclasses import replace

import pytest
import torch
from PIL import Image

from sgpa.core.errors import ConfigError, InputError
from sgpa.core.files import read_json, read_tensors
from sgpa.data import Dataset
from sgpa.experiments.recipes import find, plan
from sgpa.experiments.recipes.user_data import user_recipe
from sgpa.experiments.runner.run_folder import load_task
from sgpa.experiments.tasks import ImageFolderConfig, TextTableConfig
from sgpa.experiments.tasks.base import split_user_rows
from sgpa.inference.saved import read_saved
from sgpa.models import GraphConfig, PatchConfig
from sgpa.training.compare import Comparison
from sgpa.training.defaults import defaults_for, patch_size
from sgpa.training.left_out import LeftOut
from support.paths import ROOT
from support.terminal import sgpa
from support.user_files import write_reviews

SMILES = ["CCO", "CCN", "CCC", "CCCC", "CCCO", "CC(C)O", "c1ccccc1", "CC=O", "CCF", "CCCl", "C=C", "C#N"]
OLD = ROOT / "tests" / "fixtures" / "v0.1"
SMALL = ["model.depth=1", "model.width=8", "model.heads=2", "sgpa.attention.num_global=3"]
SETTINGS = [word for setting in SMALL for word in ("--set", setting)]
TINY = [*SETTINGS, "--epochs", 2, "--batch-size", 8]


@pytest.fixture
def no_page(monkeypatch):
    """Do not draw the report, which takes seconds."""
    monkeypatch.setattr("sgpa.report.write_report", lambda _, folder: folder / "report.html")


@pytest.fixture
def photos(tmp_path):
    for name, colour in (("apples", (200, 30, 30)), ("limes", (30, 200, 30))):
        (tmp_path / "fruit" / name).mkdir(parents=True)
        for i in range(12):
            image = Image.new("RGB", (40 + i, 40), tuple(min(255, c + 3 * i) for c in colour))
            image.save(tmp_path / "fruit" / name / f"{i}.png")
    return tmp_path / "fruit"


@pytest.fixture
def reviews(tmp_path):
    return write_reviews(tmp_path / "reviews.csv")


def records(folder):
    return json.loads((folder / "results.json").read_text())["records"]


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_results_equal_those_of_version_0_1(tmp_path):
    """Same split, seeds, stages and settings; the settings of version 0.1 are given explicitly."""
    out = tmp_path / "run"
    options = ["--size", 8, "--epochs", 5, "--batch-size", 10, "--lr", 3e-3, "--method", "sgpa", "--compare"]
    optim = {"weight_decay": 0, "final_lr": 3e-3 / 50, "select_every": 1, "patience": "none"}
    stages = {"optim": 5, "stage1": 2, "stage2": 3}
    old_settings = [
        "task.split=random",
        "kernel.locality=1,2",
        "model.embedding.patch_size=1",
        "sgpa.attention.form=orthogonal",
        "sgpa.initial_variance_scale=1",
        "sgpa.kl.a=1/N",
        *(f"{stage}.{name}={value}" for stage in stages for name, value in optim.items()),
        *(f"{stage}.epochs={epochs}" for stage, epochs in stages.items()),
    ]
    given = [word for setting in old_settings for word in ("--set", setting)]
    run = sgpa("train", "images", OLD / "photos", "--out", out, *options, *SETTINGS, *given)
    assert run.code == 0, run.err

    def values(folder):
        return {(r["method"], r["metric"]): r["value"] for r in records(folder)}

    old, new = values(OLD / "user-run"), values(out)
    for key, value in old.items():  # the largest gap of a bin moves most
        assert new[key] == pytest.approx(value, abs=5e-3 if key[1].startswith("mce") else 1e-3), key
    new, old = (
        json.loads(file.read_text())
        for file in (out / "cells" / "kernel-sgpa-0" / "run.json", OLD / "user-run" / "run.json")
    )
    assert new["classes"] == old["classes"]
    summary = json.loads((OLD / "user-run" / "results.json").read_text())["summary"]
    results = json.loads((out / "results.json").read_text())
    assert (results["title"], results["summary"]) == ("photos: 40 images", summary)


@pytest.mark.slow
@pytest.mark.usefixtures("no_pdf")
def test_images_become_a_run_folder_with_a_report(photos, tmp_path):
    run = sgpa("train", "images", photos, "--out", tmp_path / "run", "--size", 8, *TINY)
    assert run.code == 0, run.err
    assert "17 rows to train on, 3 held out, 4 to test: training takes at most" in run.err
    assert "held-out NLL of 3 rows: SGPA" in run.out
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {
        *("recipe.json", "trainings", "cells", "results.json", "timings.json", "report.html")
    }
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["run"]["recipe"]["task"]["path"] == "fruit"  # results are shared, paths are not
    assert {r["method"] for r in results["records"]} >= {"sgpa", "majority", "logistic:pixels"}
    assert "Majority class" in run.out
    assert "3 held-out rows are too few to measure novelty" in run.out
    assert "on 4 test rows: accuracy" in run.out.replace("\n", " ")
    assert "Simple baselines" in (tmp_path / "run" / "report.html").read_text()
    shown = next(c["data"] for c in results["curves"] if c["kind"] == "cases")
    assert shown["least_sure"][0]["picture"].startswith("data:image/png;base64,")
    assert shown["least_sure"][0]["caption"].startswith(("apples/", "limes/"))
    assert sum(map(sum, shown["confusion"])) == 4
    assert [sum(row) for row in shown["confusion"]] == [
        2,
        2,
    ]  # both classes have their share of the test rows
    copy = shutil.move(tmp_path / "run", tmp_path / "moved")
    fruit = sorted((photos / "apples").iterdir())[:2]
    shown = sgpa("predict", copy, *fruit, "--json")
    answers = json.loads(shown.out)
    first = json.loads((copy / "recipe.json").read_text())["values"]["methods"][0]
    chosen = {"sgpa": "SGPA", "ts": "point model + temperature", "mle": "point model"}[first]
    assert f"chosen: {chosen}" in run.out
    assert f"Using {copy / 'cells' / f'kernel-{first}-0'}, one of 2 models" in shown.err
    assert [answer["file"] for answer in answers] == [str(file) for file in fruit]
    assert {answer["label"] for answer in answers} <= {"apples", "limes"}
    assert results["title"] == "fruit: 24 images"
    fruit[0].unlink()
    load_task.cache_clear()  # as in another process
    changed = sgpa("train", "images", photos, "--out", copy, "--size", 8, *TINY).complaint
    assert changed == (
        f"error: the data of fruit changed since the run in {copy}; give --out another folder, or restore "
        "the data to resume the run"
    )


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_texts_are_compared_evaluated_and_exported(reviews, tmp_path, monkeypatch):
    out = tmp_path / "run"
    options = ("--vocabulary", 300, "--method", "sgpa", "--compare", *TINY)
    run = sgpa("train", "text", reviews, "--out", out, *options)
    assert run.code == 0, run.err
    assert "MLE" in run.out
    with monkeypatch.context() as patched:
        scores = Comparison({"sgpa": 2.0, "mle": 1.0}, 3)
        patched.setattr("sgpa.training.compare.compare", lambda *_: scores)
        worse = sgpa("train", "text", reviews, "--out", out, *options)
    sentence = "SGPA is worse than its point model (held-out NLL of 3 rows: SGPA 2.000, point model 1.000)"
    assert sentence in worse.out
    measured = records(out)
    assert {r["method"] for r in measured} == {"mle", "sgpa", "majority", "logistic:TF-IDF"}
    assert "mcc" in {r["metric"] for r in measured}
    assert (out / "cells" / "kernel-sgpa-0" / "tokenizer.json").exists()
    assert sgpa("evaluate", out).code == 0
    again = json.loads(sgpa("evaluate", out, "--again", "--json").out)
    key = ("method", "metric", "value")
    assert sorted([r[k] for k in key] for r in again) == sorted([r[k] for k in key] for r in measured)

    ask = ("--text", "a good film", "--json")
    default = sgpa("predict", out, *ask)
    assert f"Using {out / 'cells' / 'kernel-sgpa-0'}, one of 2 models" in default.err
    assert default.out == sgpa("predict", out / "cells" / "kernel-sgpa-0", *ask).out
    assert sgpa("export", out, tmp_path / "model").code == 0
    assert sgpa("predict", tmp_path / "model", *ask).out == default.out
    assert str(tmp_path) not in (tmp_path / "model" / "run.json").read_text()
    assert "without the recipe" in sgpa("evaluate", tmp_path / "model").complaint

    before = (out / "results.json").read_bytes()
    text = reviews.read_text()
    reviews.write_text(text.replace('a good film, number 1"', 'a fine film, number 1"'))
    load_task.cache_clear()  # as in another process
    assert "reviews have changed since" in sgpa("evaluate", out, "--again").complaint
    exchanged = text.replace('",pos', '",p').replace('",neg', '",pos').replace('",p\n', '",neg\n')
    assert exchanged.count("pos") == text.count("pos")
    reviews.write_text(exchanged)
    load_task.cache_clear()
    assert "reviews have changed since" in sgpa("evaluate", out, "--again").complaint
    reviews.unlink()
    load_task.cache_clear()
    assert str(reviews) in sgpa("evaluate", out, "--again").complaint
    assert (out / "results.json").read_bytes() == before
    assert "holds runs of recipe reviews" in sgpa("train", "digits", "--out", out).complaint


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_molecules_are_predicted_with_error_bars(tmp_path):
    pytest.importorskip("rdkit", reason="the extra `graph` (rdkit) is not installed")
    path = tmp_path / "boiling.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", "target"])
        writer.writerows([smiles, 300 + 40 * len(smiles)] for smiles in SMILES * 2)
    out = tmp_path / "run"
    run = sgpa("train", "molecules", path, "--out", out, *TINY)
    assert run.code == 0, run.err
    metrics = {r["metric"]: r["value"] for r in records(out)}
    assert set(metrics) >= {"mae", "rmse", "nll", "coverage_50", "coverage_90", "trusted_ood"}
    assert metrics["mae"] < 300  # in the targets' own unit, around their mean
    path.unlink()
    (answer,) = json.loads(sgpa("predict", out, "--text", "CCO", "--json").out)
    assert answer["deviation"] >= max(answer["model_deviation"], answer["data_deviation"]) > 0
    assert answer["low_90"] <= answer["low_50"] < answer["value"] < answer["high_50"] <= answer["high_90"]
    assert "atom 'Br' does not occur" in sgpa("predict", out, "--text", "CBr").complaint
    both = sgpa("predict", out, "--text", "CBr", "--text", "CCO")
    assert both.code == 0
    assert "CBr: unreadable: atom 'Br' does not occur" in both.out
    assert "atom 'Br'" in sgpa("predict", out, "--text", "CBr", "--text", "CCO", "--strict").complaint
    scale = read_tensors(out / "cells" / "kernel-sgpa-0" / "calibrated-0.safetensors")[0]["likelihood.log_b"]
    opened = read_saved(out / "cells" / "kernel-sgpa-0").open().predictor
    assert float(opened.likelihood.log_b.detach()) == pytest.approx(float(scale))
    note = read_json(next((out / "trainings").glob("*-sgpa-0")) / "finished.json", dict)
    rule = read_json(out / "cells" / "kernel-sgpa-0" / "run.json", dict)["trust"]
    noise = 2 * (opened.likelihood.scale.detach().double()) ** 2
    errors = LeftOut.from_json(note["left_out"]).residuals(noise).sort().values
    assert rule["residuals"] == pytest.approx(errors.tolist(), rel=1e-3, abs=1e-5)
    trusted = [
        json.loads(sgpa("predict", out, "--text", "CCO", "--json", "--max-error", x).out) for x in (1e-9, 1e9)
    ]
    assert ["unsure" in rows[0]["reason"] for rows in trusted] == [True, False]
    assert "--max-error" in sgpa("predict", out, "--text", "CCO", "--max-error", -1).complaint


def test_molecules_with_one_target_teach_nothing(tmp_path):
    pytest.importorskip("rdkit", reason="the extra `graph` (rdkit) is not installed")
    path = tmp_path / "same.csv"
    path.write_text("smiles,target\n" + "".join(f"{smiles},2.5\n" for smiles in SMILES))
    assert sgpa("train", "molecules", path, "--out", tmp_path / "run").complaint == (
        f"error: {path}: all 12 molecules have the target 2.5; there is nothing to learn from them"
    )


def test_the_tokenizer_is_trained_without_the_test_rows(tmp_path):
    """Every row repeats a word of its own; words of test rows must not have become tokens."""
    rng = random.Random(0)
    words = ["".join(rng.choices("bcdfghjklmnpqrstvwxz", k=7)) for _ in range(40)]
    path = tmp_path / "words.csv"
    path.write_text("text,label\n" + "".join(f"{w} {w} {w},{i % 2}\n" for i, w in enumerate(words)))
    task = TextTableConfig(path=str(path), vocabulary=900).load(0)
    tokenizer = task.reader.tokenizer

    def pieces(ids):
        word = tokenizer.decode(ids.tolist()).split()[0]
        assert word in words
        return len(tokenizer.encode(f" {word}", add_special_tokens=False).ids)

    learned = torch.cat([task.splits.train.inputs, task.splits.validation.inputs])
    assert {pieces(row) for row in learned} == {1}
    assert min(pieces(row) for row in task.splits.test.inputs) > 1


def test_few_texts_with_blanks_are_read_as_their_different_words(tmp_path, monkeypatch):
    path = write_reviews(tmp_path / "reviews.csv")
    config = TextTableConfig(path=str(path), words=True)
    task = config.load(0)
    for row in task.splits.train.inputs.tolist():
        words = [token for token in row if token != task.sizes["pad"]]
        assert len(words) == len(set(words))
    twice = task.reader.read([], ["a good film, a good film"]).inputs
    once = task.reader.read([], ["a good film,"]).inputs
    assert twice.tolist() == once.tolist()
    assert not replace(config, words=False).load(0).reader.distinct
    with monkeypatch.context() as patch:
        patch.setattr("sgpa.inference.readers.texts.FEW_TEXTS", 5)
        assert not config.load(0).reader.distinct
    joined = path.read_text(encoding="utf-8").replace(" ", "_")
    path.write_text(joined, encoding="utf-8")
    assert not config.load(0).reader.distinct


def test_rows_are_split_into_disjoint_parts():
    data = Dataset(torch.arange(100), torch.zeros(100))
    splits, rest, test = split_user_rows(data, seed=3)
    parts = [part.inputs for part in (splits.train, splits.validation, splits.test)]
    assert [len(part) for part in parts] == [77, 8, 15]
    assert torch.cat(parts).sort().values.tolist() == list(range(100))
    assert set(rest.tolist()) == set(torch.cat(parts[:2]).tolist())
    assert torch.equal(data[test].inputs, splits.test.inputs)
    assert not torch.equal(split_user_rows(data, seed=4)[0].test.inputs, splits.test.inputs)
    with pytest.raises(InputError, match="3 rows are too few"):
        split_user_rows(Dataset(torch.arange(3), torch.zeros(3)), 0)


def test_a_stratified_split_gives_every_class_its_share():
    data = Dataset(torch.arange(100), torch.tensor([0] * 80 + [1] * 20))
    for seed in range(5):
        splits, _, _ = split_user_rows(data, seed, "stratified")
        assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [72, 13, 15]
        assert int(splits.test.targets.sum()) == 3
        assert int(splits.validation.targets.sum()) in (2, 3)


@pytest.mark.parametrize("bad", [0, -0.1, 1.5, "nan"])
def test_shares_of_wrong_answers_out_of_range_are_one_line(photos, tmp_path, bad):
    complaint = sgpa("train", "images", photos, "--out", tmp_path / "run", "--max-error", bad).complaint
    assert "--max-error" in complaint
    assert "between 0 and 1" in complaint or "a finite number" in complaint
    assert not (tmp_path / "run").exists()


def test_recipes_of_user_data_have_the_defaults_of_fit(tmp_path):
    photos = ImageFolderConfig(path=str(tmp_path / "photos"))
    recipe = user_recipe(photos, 240, epochs=50, lr=1e-3, methods=("sgpa", "mle"))
    assert (recipe.name, recipe.methods) == ("photos", ("sgpa", "mle"))
    assert [o.epochs for o in (recipe.optim, recipe.stage1, recipe.stage2)] == [18, 18, 32]
    assert (recipe.optim.lr, recipe.optim.batch_size) == (1e-3, 48)  # five equal batches
    assert plan(recipe, "sgpa").stages[0] == plan(recipe, "ts").stages[0]  # trained once
    assert plan(recipe, "de").members(1) == (5, 6, 7, 8, 9)  # members share the split of the recipe
    defaults = defaults_for(recipe.model.embedding, 240, outputs=10, epochs=50, lr=1e-3)
    assert plan(recipe, "sgpa").method == defaults.method
    with pytest.raises(ConfigError, match=r"epochs=1 \(allowed: 2 or more\)"):
        user_recipe(photos, 240, epochs=1)
    assert find("digits").name == "digits"


@pytest.mark.parametrize("method", ["mle", "mcd", "mfvi", "de", "posthoc"])
def test_without_sgpa_every_method_trains_for_all_epochs(tmp_path, method):
    recipe = user_recipe(ImageFolderConfig(path=str(tmp_path)), 240, epochs=50, methods=(method, "mle"))
    assert [stage.optim.epochs for stage in plan(recipe, method).stages] == [50]


def test_second_stage_of_molecules_has_a_quarter_of_the_rate():
    graphs = GraphConfig(node_types=3, edge_types=2)
    for rate, given in ((2e-3, {}), (1e-2, {"lr": 1e-2})):
        chosen = defaults_for(graphs, 255, outputs=1, likelihood="laplace", **given)
        assert (chosen.stage1.lr, chosen.stage2.lr) == (rate, rate / 4)
    assert [chosen.stage1.epochs, chosen.stage2.epochs] == [42, 78]
    for rows, rounds in ((255, 0), (999, 0), (1000, 2)):
        model = defaults_for(graphs, rows, outputs=1, likelihood="laplace").model
        assert model.embedding.message_passing == rounds


def test_steps_grow_with_the_number_of_rows_for_photographs_only():
    digits = PatchConfig(image_size=8, channels=1, patch_size=2)
    for rows in (100, 300, 1200, 3000):
        chosen = defaults_for(digits, rows, outputs=10)
        steps = -(-rows // chosen.stage1.batch_size) * chosen.total.epochs
        assert steps == pytest.approx(6000, rel=0.02)
        assert chosen.stage1.epochs + chosen.stage2.epochs == chosen.total.epochs
    assert defaults_for(digits, 50_000, outputs=10).total.epochs == 20
    for rows, steps in ((255, 4000), (850, 4000), (2550, 5100), (10_000, 6000)):
        chosen = defaults_for(PatchConfig(), rows, outputs=3)
        assert -(-rows // chosen.total.batch_size) * chosen.total.epochs == pytest.approx(steps, rel=0.02)
        assert chosen.stage1.epochs / chosen.total.epochs == pytest.approx(0.35, abs=0.02)
    assert [patch_size(size) for size in (32, 8, 28, 224, 7)] == [4, 2, 4, 28, 1]


def test_errors_name_the_options_of_the_command(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("words,stars\na good film,5\n", encoding="utf-8")
    complaint = sgpa("train", "text", table, "--out", tmp_path / "run").complaint
    assert "name one with --column" in complaint
    complaint = sgpa("train", "text", table, "--column", "words", "--out", tmp_path / "run").complaint
    assert "name one with --label" in complaint
    complaint = sgpa("train", "molecules", table, "--out", tmp_path / "run").complaint
    assert "name one with --smiles" in complaint
    assert not (tmp_path / "run").exists()


def test_a_run_among_the_images_is_refused(photos):
    before = sorted(photos.rglob("*"))
    for out in (photos, photos / "runs" / "photos"):
        complaint = sgpa("train", "images", photos, "--out", out, "--size", 8, *TINY).complaint
        assert f"--out {out} lies in the folder of the images, {photos}; name a folder outside" in complaint
    assert sorted(photos.rglob("*")) == before


def test_a_folder_of_another_run_is_refused_and_unchanged(photos, tmp_path):
    (tmp_path / "recipe.json").write_text("{}")
    complaint = sgpa("train", "images", photos, "--out", tmp_path, *SETTINGS).complaint
    assert "holds no recipe" in complaint
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["recipe.json"]
    old = shutil.copytree(OLD / "user-run", tmp_path / "old")
    assert "holds a run without recipe.json" in sgpa("train", "images", photos, "--out", old).complaint
