"""What an audit refuses, in one line, with nothing written."""

import json
import os
import subprocess
import sys

import pytest
import transformers

from support.terminal import sgpa
from support.tiny_classifiers import NAMES, image_classifier, text_classifier, write_images, write_texts
from support.tiny_transformers import HIDDEN

PROBE = """
import sys
from sgpa.cli import main
try:
    main()
except SystemExit as end:
    print("exit", end.code, "torch" in sys.modules)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("audit")
    model, tokenizer = text_classifier(root / "texts")
    write_texts(root / "rows.csv", model, tokenizer)
    write_images(root / "photos", image_classifier(root / "images"), rows=80)
    (root / "headless").mkdir()
    config = {"architectures": ["BertModel"], "model_type": "bert"}
    (root / "headless" / "config.json").write_text(json.dumps(config))
    (root / "deep").mkdir()
    (root / "deep" / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2**31}))
    (root / "empty").mkdir()
    (root / "file").touch()
    return root


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere", "rows.csv"], "nowhere is not a folder; name a folder that save_pretrained wrote"),
        (["empty", "rows.csv"], "empty has no config.json"),
        (["headless", "rows.csv"], "headless has no classification head: architectures are BertModel"),
        (["deep", "rows.csv"], "num_hidden_layers=2147483648 (allowed: 10000 at most)"),
        (["texts", "nowhere.csv"], "nowhere.csv does not exist"),
        (["texts", "photos"], "photos is a folder, but the model reads texts"),
        (["images", "rows.csv"], "rows.csv is a file, but the model reads images"),
        (["texts", "rows.csv", "--train", "nowhere.csv"], "nowhere.csv does not exist"),
        (["texts", "rows.csv", "--out", "file/page"], "file is a file; name a folder"),
    ],
)
def test_wrong_paths_are_errors_before_torch_is_imported(folder, arguments, complaint):
    before = {path.name for path in folder.iterdir()}
    done = subprocess.run(
        [sys.executable, "-c", PROBE, "audit", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert complaint in " ".join(done.stderr.split())
    assert done.stdout.strip() == "exit 2 False"
    assert {path.name for path in folder.iterdir()} == before


def rows(path, lines, head="text,label"):
    path.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    return path


def refused(folder, tmp_path, *arguments, model="texts"):
    out = tmp_path / "page"
    complaint = sgpa("audit", folder / model, *arguments, "--out", out).complaint
    assert not out.exists()
    return complaint


def sentences(label, count):
    return [f"kara loso miti {i % 7},{label}" for i in range(count)]


def test_unknown_labels(folder, tmp_path):
    file = rows(tmp_path / "a.csv", sentences("cat", 60) + sentences("horses", 60))
    complaint = refused(folder, tmp_path, file)
    allowed = "allowed: cat, dog, horse, or their numbers 0 to 2"
    assert f"label 'horses' is not a class of the model ({allowed}); did you mean horse?" in complaint


def test_one_class_only(folder, tmp_path):
    assert "every row has the label 'cat'" in refused(
        folder, tmp_path, rows(tmp_path / "a.csv", sentences("cat", 90))
    )


def test_too_few_rows(folder, tmp_path):
    file = rows(tmp_path / "a.csv", sentences("cat", 20) + sentences("dog", 20))
    assert "40 rows; an audit needs at least 60" in refused(folder, tmp_path, file)


def test_too_few_rows_of_a_class(folder, tmp_path):
    file = rows(tmp_path / "a.csv", sentences("cat", 80) + sentences("dog", 2))
    complaint = refused(folder, tmp_path, file)
    assert "2 rows of class 'dog' (of 82); at least 4 of every class are needed" in complaint
    assert "raise --max-rows" in complaint


def test_missing_columns(folder, tmp_path):
    file = rows(tmp_path / "a.csv", sentences("cat", 80), head="words,kind")
    assert "which column holds the text? Its columns are words, kind; name one with --column" in refused(
        folder, tmp_path, file
    )
    complaint = refused(folder, tmp_path, file, "--column", "words", "--label", "stars")
    assert "has no column 'stars'" in complaint


def test_an_unreadable_image(folder, tmp_path):
    photos = write_images(tmp_path / "photos", image_classifier(tmp_path / "model"), rows=80)
    broken = next((photos / NAMES[0]).iterdir())
    broken.write_bytes(b"no image")
    assert f"{broken.name} cannot be read as an image" in refused(folder, tmp_path, photos, model="images")


def test_a_single_class_folder(folder, tmp_path):
    photos = write_images(tmp_path / "photos", image_classifier(tmp_path / "model"), names=["cat"] * 3)
    assert "has one class, cat; an audit needs two or more" in refused(
        folder, tmp_path, photos, model="images"
    )


def test_a_missing_gpu(folder, tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert "device 'cuda': no GPU found" in refused(folder, tmp_path, folder / "rows.csv", "--device", "cuda")


def test_a_folder_that_cannot_be_written(folder, tmp_path, monkeypatch):
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: allowed(path, mode) and not mode & os.W_OK)
    assert "cannot be written to" in refused(folder, tmp_path, folder / "rows.csv")


def test_a_negative_seed(folder, tmp_path):
    assert "seed" in refused(folder, tmp_path, folder / "rows.csv", "--seed", "-1")


def test_a_regressor(folder, tmp_path):
    text_classifier(tmp_path / "model", num_labels=1, id2label={0: "x"}, label2id={"x": 0})
    complaint = refused(folder, tmp_path, folder / "rows.csv", model=tmp_path / "model")
    assert "audit needs a classifier with two classes or more" in complaint


def test_damaged_weights(folder, tmp_path):
    text_classifier(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"damaged")
    assert "cannot be opened" in refused(folder, tmp_path, folder / "rows.csv", model=tmp_path / "model")


def test_a_model_without_its_tokenizer(folder, tmp_path):
    config = transformers.BertConfig(**HIDDEN, vocab_size=40, num_labels=3)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "model")
    complaint = refused(folder, tmp_path, folder / "rows.csv", model=tmp_path / "model")
    assert "has no tokenizer; save it there with its save_pretrained" in complaint


def test_an_interrupt_leaves_nothing(folder, tmp_path, monkeypatch):
    from sgpa.experiments.audit import audit as module

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "fit_methods", interrupt)
    outcome = sgpa("audit", folder / "texts", folder / "rows.csv", "--out", tmp_path / "page")
    assert outcome.code == 130
    assert "stopped; nothing was written" in outcome.err
    assert not (tmp_path / "page").exists()
