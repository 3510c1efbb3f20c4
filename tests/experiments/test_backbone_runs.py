"""`sgpa train text` and `sgpa train images` on features of a frozen network, from raw files to answers."""

import json

import pytest
from PIL import Image

from sgpa.core.files import read_json
from sgpa.experiments.recipes.user_data import user_recipe
from sgpa.experiments.tasks import ImageFolderConfig, TextTableConfig
from sgpa.models import FeatureConfig, TokenConfig
from support.backbones import tiny_bert, tiny_vit
from support.terminal import sgpa
from support.user_files import write_reviews

pytest.importorskip("transformers")

SMALL = ["model.width=8", "model.heads=2", "sgpa.attention.num_global=3"]
TINY = [word for setting in SMALL for word in ("--set", setting)] + ["--epochs", 2, "--batch-size", 8]


@pytest.fixture(autouse=True)
def quick(tmp_path, monkeypatch):
    """Keep features below the test's folder, and do not draw the report, which takes seconds."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("sgpa.report.write_report", lambda _, folder: folder / "report.html")


@pytest.fixture
def reviews(tmp_path):
    return write_reviews(tmp_path / "reviews.csv")


@pytest.fixture
def fruit(tmp_path):
    for name, colour in (("apples", (200, 30, 30)), ("limes", (30, 200, 30))):
        (tmp_path / "fruit" / name).mkdir(parents=True)
        for i in range(12):
            Image.new("RGB", (20 + i, 20), colour).save(tmp_path / "fruit" / name / f"{i}.png")
    return tmp_path / "fruit"


@pytest.mark.slow
def test_texts_are_read_through_the_backbone(reviews, tmp_path):
    bert, out = tiny_bert(tmp_path / "bert"), tmp_path / "run"
    run = sgpa("train", "text", reviews, "--backbone", bert, "--out", out, *TINY)
    assert run.code == 0, run.err
    assert "pretrained network usually help" not in run.err
    assert len(list((tmp_path / "cache" / "sgpa" / "features").iterdir())) == 1
    (cell, *_) = sorted((out / "cells").iterdir())
    reader = read_json(cell / "reader.json", dict)
    assert reader["kind"] == "text-features"
    assert reader["backbone"]["name"] == str(bert)
    asked = sgpa("predict", cell, "--text", "a good film", "--text", "a bad film", "--json")
    assert asked.code == 0, asked.err
    assert {answer["label"] for answer in json.loads(asked.out)} <= {"pos", "neg"}
    exported = sgpa("export", cell, tmp_path / "exported")
    assert exported.code == 0, exported.err
    again = sgpa("predict", tmp_path / "exported", "--text", "a good film", "--text", "a bad film", "--json")
    assert json.loads(again.out) == json.loads(asked.out)
    tiny_bert(bert, layers=2)
    changed = sgpa("predict", cell, "--text", "a good film")
    assert "has other weights than when this model was trained" in changed.complaint


@pytest.mark.slow
def test_images_are_read_through_the_backbone(fruit, tmp_path):
    out = tmp_path / "run"
    run = sgpa("train", "images", fruit, "--backbone", tiny_vit(tmp_path / "vit"), "--out", out, *TINY)
    assert run.code == 0, run.err
    asked = sgpa("predict", out, fruit / "limes" / "1.png", fruit / "apples", "--json")
    assert asked.code == 0, asked.err
    assert len(json.loads(asked.out)) == 13


@pytest.mark.slow
def test_few_rows_without_a_backbone_get_a_recommendation(reviews, tmp_path):
    run = sgpa("train", "text", reviews, "--vocabulary", 300, "--out", tmp_path / "run", *TINY)
    assert run.code == 0, run.err
    lines = [line for line in run.err.splitlines() if "--backbone minilm" in line]
    assert len(lines) == 1
    assert lines[0] == (
        "26 rows to learn from are few: features of a pretrained network usually help; try --backbone minilm"
    )


def test_wrong_backbones_are_one_line(reviews, fruit, tmp_path):
    bert = tiny_bert(tmp_path / "bert")
    for run, message in (
        (sgpa("train", "text", reviews, "--backbone", tmp_path), "no config.json there"),
        (sgpa("train", "images", fruit, "--backbone", bert), "a bert network does not read images"),
        (sgpa("train", "images", fruit, "--backbone", "minilm-large"), "no such folder"),
    ):
        assert message in run.complaint


def test_recipe_reads_features_where_there_is_a_backbone():
    with_backbone = user_recipe(TextTableConfig(path="t.csv", backbone="minilm"), rows=340)
    assert isinstance(with_backbone.model.embedding, FeatureConfig)
    assert isinstance(
        user_recipe(ImageFolderConfig(path="p", backbone="x"), rows=340).model.embedding, FeatureConfig
    )
    without = user_recipe(TextTableConfig(path="t.csv"), rows=340).model.embedding
    assert isinstance(without, TokenConfig)
    assert without.linear_start


def test_long_texts_get_few_steps_because_they_start_trained():
    recipe = user_recipe(TextTableConfig(path="t.csv"), rows=340)
    assert recipe.stage1.epochs + recipe.stage2.epochs < 10
    assert user_recipe(TextTableConfig(path="t.csv"), rows=3400).stage2.epochs <= 4
