"""A user's own files: from a folder or a table to a model and a report."""

import csv
import json

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import sgpa
from sgpa import own
from sgpa.cli import app
from sgpa.errors import InputError

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
    about = json.loads((tmp_path / "run" / "sgpa" / "model" / "task.json").read_text())
    assert about["classes"] == ["apples", "limes"]


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
    assert (out / "sgpa" / "model" / "vocabulary.json").exists()


def test_the_tokenizer_never_sees_a_test_row(reviews):
    task = own.text(reviews, vocabulary=300)
    vocabulary = task.files["tokenizer.json"]
    assert len(task.train) == 26
    assert len(task.test) == 4
    assert "film" in vocabulary


def test_too_few_rows_and_odd_sizes():
    with pytest.raises(InputError, match="3 rows are too few"):
        own.cut(3, 0)
    assert [own.patch_for(size) for size in (32, 8, 28, 224, 7)] == [4, 1, 4, 28, 1]


@pytest.mark.parametrize("command", ["images", "text", "molecules"])
def test_help_has_an_example(command):
    assert f"Example: sgpa train {command}" in " ".join(run(command, "--help").output.split())
