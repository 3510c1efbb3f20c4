"""Audits of classifiers that SGPA cannot be attached to."""

import pytest
import torch

from sgpa.core.files import read_json
from sgpa.experiments.audit.audit import audit
from sgpa.experiments.audit.checks import read_kind
from sgpa.experiments.audit.scores import score_detectors
from support.terminal import sgpa
from support.tiny_classifiers import image_classifier, text_classifier, write_images, write_texts

RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
METHODS = ["plain", "temperature", "vector", "matrix", "laplace"]
DETECTORS = ["entropy", "energy", "knn", "mahalanobis"]

pytestmark = pytest.mark.xdist_group("audit")


def test_a_resnet_has_all_rows_but_those_of_sgpa(tmp_path):
    model = image_classifier(tmp_path / "resnet", kind="resnet", **RESNET)
    write_images(tmp_path / "photos", model, rows=80)
    outcome = sgpa("audit", tmp_path / "resnet", tmp_path / "photos", "--out", tmp_path / "page")
    assert outcome.code == 0, outcome.err
    results = read_json(tmp_path / "page" / "audit.json", dict)
    assert list(results["methods"]) == METHODS
    assert list(results["detection"]["mean"]) == DETECTORS
    assert results["detection"]["novelty_ahead"] == {}
    assert all(own["cost"]["time"] > 0 for own in results["methods"].values())
    why = (
        "no attention found in ResNetForImageClassification; if the model has attention, name the linear "
        "maps of its queries: sgpa.attach(model, modules=[...])"
    )
    assert results["skipped"]["SGPA, attached"] == why
    assert f"SGPA was not tried: {why}." in results["recommendation"]
    assert f"SGPA was not tried: {why}." in outcome.out
    assert not any("SGPA" in line for line in results["recommendation"] if "not tried" not in line)
    html = (tmp_path / "page" / "audit.html").read_text("utf-8")
    assert why in html
    assert "inducing queries" not in html
    assert "novelty" not in html


def test_attention_that_is_not_recognised(tmp_path):
    model, tokenizer = text_classifier(tmp_path / "model", kind="squeezebert", embedding_size=16)
    rows = write_texts(tmp_path / "rows.csv", model, tokenizer, rows=80)
    progress = []
    result = audit(tmp_path / "model", rows, on_progress=lambda *line: progress.append(line))
    assert list(result.methods) == [*METHODS, "dropout"]
    assert result.skipped.keys() == {"SGPA, attached"}
    assert progress[-1][1] == progress[-1][2]


def test_attention_that_reads_tokens_in_another_order(tmp_path):
    options = {"attention_window": 4, "max_position_embeddings": 32}
    model, tokenizer = text_classifier(tmp_path / "model", kind="longformer", **options)
    rows = write_texts(tmp_path / "rows.csv", model, tokenizer, rows=80)
    result = audit(tmp_path / "model", rows)
    assert "sgpa" not in result.methods
    assert "longformer.encoder.layer.0.attention.self reads [12, " in result.skipped["SGPA, attached"]


def test_models_that_are_named_with_teacher_are_classifiers(tmp_path):
    image_classifier(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(
        config.read_text().replace("ForImageClassification", "ForImageClassificationWithTeacher")
    )
    assert read_kind(tmp_path) == "image"


def test_scores_without_novelty_are_compared_with_nothing():

    scores = score_detectors({"entropy": torch.rand(9)}, {"noise": {"entropy": torch.rand(9)}})
    assert scores.novelty_ahead == {}
    assert scores.mean.keys() == {"entropy"}
