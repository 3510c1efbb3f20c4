"""A user's own files: from a folder or a table to a model and a report."""

import csv
import json
import shutil

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import sgpa
from sgpa.cli.app import app
from sgpa.core.errors import InputError
from sgpa.experiments import user_data
from support.terminal import sgpa as command

SMILES = ["CCO", "CCN", "CCC", "CCCC", "CCCO", "CC(C)O", "c1ccccc1", "CC=O", "CCF", "CCCl", "C=C", "C#N"]


def run(*arguments):
    return CliRunner().invoke(app, ["train", *map(str, arguments)], catch_exceptions=False)


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
    path = tmp_path / "reviews.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for i in range(30):
            writer.writerow([f"a {'good' if i % 2 else 'bad'} film, number {i}", "pos" if i % 2 else "neg"])
    return path


@pytest.mark.slow
def test_images_become_a_model_and_a_report(photos, tmp_path):
    result = run("images", photos, "--out", tmp_path / "run", "--size", 8, "--epochs", 3, "--lr", 0.002)
    assert result.exit_code == 0, result.output
    assert "Report" in result.output
    assert (tmp_path / "run" / "report.html").exists()
    model = sgpa.load(tmp_path / "run" / "sgpa" / "model")
    found = model.predict(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))
    assert found.probabilities.shape == (2, 2)
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["classes"] == ["apples", "limes"]
    copy = shutil.move(tmp_path / "run", tmp_path / "moved")
    fruit = sorted((photos / "apples").iterdir())[:2]
    answers = json.loads(command("predict", copy, *fruit, "--json").out)
    assert [answer["file"] for answer in answers] == [str(file) for file in fruit]
    assert {answer["label"] for answer in answers} <= {"apples", "limes"}


@pytest.mark.slow
def test_texts_can_be_compared_with_a_point_model(reviews, tmp_path):
    out = tmp_path / "run"
    result = run(
        "text", reviews, "--out", out, "--epochs", 2, "--batch-size", 8, "--vocabulary", 300, "--compare"
    )
    assert result.exit_code == 0, result.output
    assert "MLE" in result.output
    records = json.loads((out / "results.json").read_text())["records"]
    assert {r["method"] for r in records} == {"mle", "sgpa"}
    assert "mcc" in {r["metric"] for r in records}
    assert (out / "sgpa" / "model" / "tokenizer.json").exists()
    assert command("evaluate", out).code == 0
    assert json.loads(command("evaluate", out, "--again", "--json").out) == records
    assert command("predict", out, reviews, "--text", "a good film").code == 0
    assert command("export", out, out.parent / "model").code == 0
    ask = ("--text", "a good film", "--json")
    assert command("predict", out.parent / "model", *ask).out == command("predict", out, *ask).out
    before = (out / "results.json").read_bytes()
    with reviews.open("a", encoding="utf-8") as file:
        file.write("another good film,pos\n")
    assert "has changed since" in command("evaluate", out, "--again").complaint
    reviews.unlink()
    assert "not there any more" in command("evaluate", out, "--again").complaint
    assert (out / "results.json").read_bytes() == before
    assert "holds a run of another kind" in command("train", "digits", "--out", out).complaint


@pytest.mark.slow
def test_molecules_become_numbers_with_error_bars(tmp_path):
    pytest.importorskip("rdkit", reason="the extra `graph` (rdkit) is not installed")
    path = tmp_path / "boiling.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", "target"])
        writer.writerows([smiles, 300 + 40 * len(smiles)] for smiles in SMILES * 2)
    out = tmp_path / "run"
    result = run("molecules", path, "--out", out, "--epochs", 2, "--batch-size", 8)
    assert result.exit_code == 0, result.output
    metrics = {r["metric"]: r["value"] for r in json.loads((out / "results.json").read_text())["records"]}
    assert set(metrics) == {"mae", "rmse", "nll"}
    assert metrics["mae"] < 300  # in the targets' own unit, around their mean
    path.unlink()
    (answer,) = json.loads(command("predict", out, "--text", "CCO", "--json").out)
    assert answer["deviation"] >= max(answer["model_deviation"], answer["data_deviation"]) > 0
    assert "atom 'Br' does not occur" in command("predict", out, "--text", "CBr").complaint


def test_the_tokenizer_never_sees_a_test_row(reviews):
    task = user_data.text(reviews, vocabulary=300)
    vocabulary = task.reader.tokenizer.to_str()
    assert len(task.train) == 26
    assert len(task.test) == 4
    assert "film" in vocabulary


def test_too_few_rows_and_odd_sizes():
    with pytest.raises(InputError, match="3 rows are too few"):
        user_data.cut(3, 0)
    assert [user_data.patch_for(size) for size in (32, 8, 28, 224, 7)] == [4, 1, 4, 28, 1]


def test_errors_name_the_options_of_the_command(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("words,stars\na good film,5\n", encoding="utf-8")
    told = command("train", "text", table, "--out", tmp_path / "run").complaint
    assert "name one with --column" in told
    told = command("train", "text", table, "--column", "words", "--out", tmp_path / "run").complaint
    assert "name one with --label" in told
    told = command("train", "molecules", table, "--out", tmp_path / "run").complaint
    assert "as --smiles" in told
    assert not (tmp_path / "run").exists()


def test_a_folder_of_a_recipe_is_left_alone(photos, tmp_path):
    (tmp_path / "recipe.json").write_text("{}")
    assert "holds runs of a recipe" in command("train", "images", photos, "--out", tmp_path).complaint
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["recipe.json"]
