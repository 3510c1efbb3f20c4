"""Audits of tiny classifiers of texts and images."""

import json
import os
import re
import socket
from itertools import count

import pytest
import torch

from sgpa.core.files import read_json
from sgpa.evaluation import metrics
from sgpa.experiments.audit.audit import audit
from sgpa.experiments.audit.checks import match_classes
from sgpa.experiments.audit.model import open_classifier
from sgpa.experiments.audit.perturb import perturbations
from sgpa.experiments.audit.rows import Batches, divide, read_rows
from sgpa.gp.temperature import careful_temperature
from support.browser import CHROMIUM, Browser
from support.terminal import sgpa
from support.tiny_classifiers import image_classifier, text_classifier, write_images, write_texts

pytestmark = pytest.mark.xdist_group("audit")  # in one process: the tests share two audits


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("audit")
    model, tokenizer = text_classifier(root / "texts")
    write_texts(root / "rows.csv", model, tokenizer)
    write_texts(root / "train.csv", model, tokenizer, rows=120, seed=5)
    write_images(root / "photos", image_classifier(root / "images"))
    return root


@pytest.fixture(scope="module")
def of_texts(folder):
    seconds = count()
    with pytest.MonkeyPatch.context() as patched:  # every method takes a second for a batch
        patched.setattr("sgpa.experiments.audit.cost.now", lambda _: next(seconds))
        outcome = sgpa("audit", folder / "texts", folder / "rows.csv", "--out", folder / "text-page")
    assert outcome.code == 0, outcome.err
    return outcome, read_json(folder / "text-page" / "audit.json", dict), folder / "text-page" / "audit.html"


@pytest.fixture(scope="module")
def of_images(folder):
    announced, progress = [], []
    result = audit(
        folder / "images",
        folder / "photos",
        announce=announced.append,
        on_progress=lambda *line: progress.append(line),
    )
    return result, announced, progress


def test_texts_have_all_methods_and_scores(of_texts):
    _, results, _ = of_texts
    assert list(results["methods"]) == [
        "plain",
        "temperature",
        "vector",
        "matrix",
        "laplace",
        "sgpa",
        "dropout",
    ]
    for own in results["methods"].values():
        assert {"accuracy", "nll", "ece", "brier", "aurc"} <= own["scores"].keys()
        assert all(x["error"] >= 0 for x in own["scores"].values())
    times = {name: own["cost"]["time"] for name, own in results["methods"].items()}
    after = dict.fromkeys(("temperature", "vector", "matrix"), 2)  # they follow the pass of the model
    assert times == after | {"plain": 1, "laplace": 1, "sgpa": 1, "dropout": 10}
    same = {
        results["methods"][name]["scores"]["accuracy"]["value"] for name in ("plain", "temperature", "sgpa")
    }
    assert len(same) == 1
    assert {"shuffled words", "replaced words", "joined halves", "shuffled letters"} == results["detection"][
        "by_perturbation"
    ]["novelty"].keys()
    assert all(0 <= x["value"] <= 1 for x in results["detection"]["mean"].values())


def test_plain_and_temperature_scores_are_those_of_the_model_run_by_hand(folder, of_texts):
    _, results, _ = of_texts
    classifier = open_classifier(folder / "texts", "cpu")
    rows = read_rows(
        classifier, folder / "rows.csv", text_column=None, label_column=None, max_rows=2000, seed=0
    )
    parts = divide(rows, None, 0)

    @torch.no_grad()
    def logits(part):
        batches = Batches(part, classifier.encode)
        return torch.cat(
            [classifier.model(**{k: v for k, v in b.items() if k != "labels"}).logits for b in batches]
        )

    f, y = logits(parts.test), parts.test.labels
    fit = torch.cat([logits(parts.statistics), logits(parts.calibration)])
    T = careful_temperature(fit.unsqueeze(0), torch.cat([parts.statistics.labels, parts.calibration.labels]))
    for name, p in {"plain": f.softmax(-1), "temperature": (f / T).softmax(-1)}.items():
        scores = results["methods"][name]["scores"]
        for metric in (metrics.accuracy, metrics.nll, metrics.ece, metrics.brier):
            assert scores[metric.__name__]["value"] == pytest.approx(metric(p, y), abs=1e-5)
    texts = [set(part.items) for part in (parts.statistics, parts.calibration, parts.test)]
    assert not texts[0] & texts[1] | texts[0] & texts[2] | texts[1] & texts[2]


def test_the_page_is_self_contained_and_says_what_the_json_says(of_texts):
    outcome, results, page = of_texts
    html = page.read_text("utf-8")
    assert not re.search(r'(src|href)="(?!#|data:)', html)
    assert "http" not in html.replace("http://www.w3.org", "")
    for sentence in results["recommendation"]:
        assert sentence in outcome.out
        assert sentence.replace("'", "&#39;").replace(" ± ", "\u00a0±\u00a0") in html
    assert f"{results['methods']['plain']['scores']['nll']['value']:.3f}" in html
    assert "80 rows; every number on this page" in html
    assert "takes about" in outcome.err


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_the_page_without_requests_and_without_scrolling_sideways(of_texts, tmp_path, width):
    with Browser(tmp_path) as browser:
        browser.open(of_texts[2].as_uri(), width=width)
        assert browser.requests == [of_texts[2].as_uri()]
        assert not browser.complaints
        assert browser.ask("document.documentElement.scrollWidth") <= width
        assert browser.ask("document.querySelectorAll('figure svg').length") == 2


def test_training_rows_are_used_for_statistics_only(folder):
    results = audit(folder / "texts", folder / "rows.csv", train=folder / "train.csv", max_rows=100).as_dict()
    assert results["data"] | {"path": "", "train": ""} == {
        "path": "",
        "train": "",
        "rows": 100,
        "test": 50,
        "fit": 50,
        "statistics": 120,
        "calibration": 50,
        "kind": "text",
    }


def test_images_without_dropout(of_images):
    result, announced, progress = of_images
    assert result.skipped == {"MC dropout + temperature": "the model has no dropout layers"}
    assert "dropout" not in result.methods
    assert {"noise", "blur", "low contrast", "shuffled tiles", "plain colours"} == result.detection[
        "by_perturbation"
    ]["entropy"].keys()
    assert len(announced) == 1
    assert "80 to fit, 80 to test; takes about" in announced[0]
    assert progress[-1][1] == progress[-1][2]
    assert json.dumps(result.as_dict())


def test_an_audit_does_not_change_the_model(folder):
    classifier = open_classifier(folder / "images", "cpu")
    before = {name: x.clone() for name, x in classifier.model.state_dict().items()}
    rows = read_rows(
        classifier, folder / "photos", text_column=None, label_column=None, max_rows=2000, seed=0
    )
    batch = next(iter(Batches(rows, classifier.encode)))
    assert batch["pixel_values"].shape == (32, 3, 8, 8)
    torch.testing.assert_close(batch["pixel_values"], rows.items[:32].float() / 127.5 - 1, atol=1e-5, rtol=0)
    for name, x in classifier.model.state_dict().items():
        assert torch.equal(x, before[name])


@pytest.mark.parametrize("kind", ["texts", "images"])
def test_opening_a_model_leaves_the_environment_and_asks_no_server(folder, kind, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a connection was opened")

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    before = dict(os.environ)
    open_classifier(folder / kind, "cpu")
    assert dict(os.environ) == before


def test_perturbed_texts_keep_what_they_should():
    texts = ["one two three four five six", "seven eight nine ten"]
    made = {name: change(texts, 0) for name, change in perturbations(texts).items()}
    assert [sorted(x.split()) for x in made["shuffled words"]] == [sorted(x.split()) for x in texts]
    changed = zip(texts[0].split(), made["replaced words"][0].split(), strict=True)
    assert sum(a != b for a, b in changed) <= 3
    assert made["joined halves"][0] == "one two three nine ten"
    assert [sorted(w) for w in made["shuffled letters"][1].split()] == [sorted(w) for w in texts[1].split()]
    assert made == {name: change(texts, 0) for name, change in perturbations(texts).items()}


def test_perturbed_images_keep_what_they_should():
    images = torch.randint(0, 256, (5, 3, 18, 18), dtype=torch.uint8)
    made = {name: change(images, 0) for name, change in perturbations(images).items()}
    assert all(x.shape == images.shape and x.dtype == torch.uint8 for x in made.values())
    assert torch.equal(made["shuffled tiles"].flatten(1).sort(1).values, images.flatten(1).sort(1).values)
    assert made["plain colours"].float().std((2, 3)).max() == 0
    assert made["blur"].float().std() < 0.5 * images.float().std()
    assert set(perturbations(images[..., :6, :6])) == {"shuffled tiles", "plain colours"}


@pytest.mark.parametrize(
    ("given", "known", "expected"),
    [
        (["Dog", "cat"], ("cat", "dog"), [1, 0]),
        (["1", "2"], ("2", "1"), [1, 0]),  # names before numbers
        (["0", "2"], ("a", "b", "c"), [0, 2]),
        (["not_entailment"], ("entailment", "Not entailment"), [1]),
    ],
)
def test_labels_are_matched_by_name_then_by_number(given, known, expected):
    assert match_classes(given, known) == expected
