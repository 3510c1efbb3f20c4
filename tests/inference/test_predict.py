"""Predicting for new files with a finished run, without the data it was trained on."""

import csv
import json
import os
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from sgpa.core.errors import CheckpointError, InputError
from sgpa.core.types import Classification, Regression
from sgpa.data.images import digits
from sgpa.data.images.folder import files_below
from sgpa.data.language_model.model import ElmoConfig, ElmoModel
from sgpa.data.texts.tokenizer import train_tokenizer
from sgpa.experiments.recipes import plan, plans
from sgpa.experiments.runner import RunFolder, benchmark, calibrate, train
from sgpa.inference import readers
from sgpa.inference.answers import Trained
from sgpa.inference.given import read_given
from sgpa.inference.readers import ImageReader, MoleculeReader, Rows, TextReader, WordReader
from sgpa.inference.trust import TrustRule
from sgpa.methods import CATALOGUE
from support import hub
from support.open_runs import export, open_cell, open_trained
from support.terminal import sgpa

SMALL = [
    *("model.depth=1", "model.width=16", "model.heads=2", "sgpa.attention.num_global=2"),
    *(f"{part}.epochs=1" for part in ("optim", "stage1", "stage2")),
    *("ensemble=2", "ensembles=1", "sngp.head.features=8", "evaluation.rows=20"),
    *("evaluation.ood_rows=20",),
]

pytestmark = pytest.mark.xdist_group("predict")  # in one process: the tests share trained models


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """Every method on digits, trained for one epoch."""
    run_folder = RunFolder.of("digits", tmp_path_factory.mktemp("runs") / "digits", SMALL)
    outcome = benchmark(run_folder, plans(run_folder.recipe), seeds=1)
    assert not outcome.failures
    return run_folder.directory / "cells"


@pytest.fixture
def photos(tmp_path):
    """Digits as image files, one of them larger and in colour."""
    folder = tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    pixels = digits.denormalise(digits.load().test.inputs[:3, 0]).mul(255).round().byte().numpy()
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(folder / f"{i}.png")
    colour = Image.fromarray(pixels[0]).resize((40, 64)).convert("RGB")
    colour.save(folder / "more" / "colour.jpg")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("method", CATALOGUE)
def test_an_exported_cell_predicts_the_same(cells, tmp_path, method):
    cell, inputs = cells / f"kernel-{method}-0", digits.load().test.inputs[:5]
    copy = export(cell, tmp_path / "models" / method)
    assert str(tmp_path) not in (copy / "run.json").read_text()
    moved = shutil.move(tmp_path / "models", tmp_path / "elsewhere") / method
    expected, actual = (open_trained(folder) for folder in (cell, moved))
    assert actual.reader == expected.reader
    assert actual.rule == expected.rule
    one, other = (t.predictor.predict(inputs).probabilities for t in (expected, actual))
    assert torch.equal(one, other)
    kept = {file.name for file in (tmp_path / "elsewhere").rglob("*") if file.is_file()}
    assert not kept & {
        "recipe.json",
        "checkpoint.safetensors",
        "best.safetensors",
        "log.jsonl",
        "results.json",
    }


def test_a_model_is_exported_from_the_command_line(cells, photos, tmp_path):
    cell, model = cells / "kernel-sgpa-0", tmp_path / "model"
    outcome = sgpa("export", cell, model)
    assert outcome.code == 0
    assert f"Next: sgpa predict {model}" in " ".join(outcome.out.split())
    answers = [json.loads(sgpa("predict", run, photos, "--json").out) for run in (cell, model)]
    assert answers[0] == answers[1]
    assert "is not empty" in sgpa("export", cell, model).complaint
    several = sgpa("export", cells.parent, tmp_path / "the default")
    assert f"Next: sgpa predict '{tmp_path / 'the default'}'" in " ".join(several.out.split())
    assert f"Using {cells / 'kernel-sgpa-0'}, one of {len(CATALOGUE)} models" in several.err
    assert json.loads((tmp_path / "the default" / "run.json").read_text())["method"] == "sgpa"
    assert "is not a folder" in sgpa("export", tmp_path / "nothing", tmp_path / "x").complaint


@pytest.mark.slow
@pytest.mark.parametrize("method", CATALOGUE)
def test_a_cell_predicts_the_same_without_its_data_and_recipe(cells, monkeypatch, method):
    cell = cells / f"kernel-{method}-0"
    inputs = digits.load().test.inputs[:5]
    expected = open_cell(cell).predictor.predict(inputs)
    monkeypatch.setattr("sgpa.data.images.digits.load", None)
    monkeypatch.setattr("sgpa.experiments.runner.run_folder.RunFolder.at", None)
    opened = open_trained(cell)
    prediction = opened.predictor.predict(inputs)
    assert torch.equal(prediction.probabilities, expected.probabilities)
    assert torch.equal(prediction.expected_entropy, expected.expected_entropy)
    assert opened.classes == tuple("0123456789")


@pytest.mark.slow
def test_images_are_predicted_from_the_command_line(cells, photos, tmp_path):
    cell = cells / "kernel-sgpa-0"
    shown = sgpa("predict", cell, photos, "--out", tmp_path / "answers.csv")
    assert shown.code == 0, shown.err
    assert "prob." in shown.out
    assert "trust" in shown.out
    with (tmp_path / "answers.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["file"] for line in lines] == [str(p) for p in files_below(photos)]
    assert {line["trust"] for line in lines} <= {"yes", "no"}
    printed = sgpa("predict", cell, photos / "1.png", photos / "0.png", "--json")
    answers = json.loads(printed.out)
    assert [answer["file"] for answer in answers] == [str(photos / "1.png"), str(photos / "0.png")]
    assert set(answers[0]) == {
        "file",
        "label",
        "probability",
        "entropy",
        "mutual_information",
        "novelty",
        "trust",
        "reason",
    }
    assert 0 <= answers[0]["novelty"] <= 1
    assert answers[0]["label"] in "0123456789"
    assert 0.1 <= answers[0]["probability"] <= 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "nothing to predict"),
        (["nowhere.png"], "nowhere.png does not exist"),
        (["broken.png"], "broken.png cannot be read as an image"),
        (["empty"], "no image in empty"),
        (["--text", "hello"], "this model reads images"),
        (["broken.png", "--column", "text"], "this model reads images"),
    ],
)
@pytest.mark.slow
def test_errors_about_images_are_one_line(cells, tmp_path, monkeypatch, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.png").write_text("no image")
    (tmp_path / "empty").mkdir()
    outcome = sgpa("predict", cells / "kernel-mle-0", *arguments, "--out", "answers.csv")
    assert complaint in outcome.complaint
    assert not (tmp_path / "answers.csv").exists()


@pytest.mark.slow
def test_folders_without_a_finished_run_are_refused(cells, photos, tmp_path):
    assert f"one of {len(CATALOGUE)} models" in sgpa("predict", cells.parent, photos).err
    assert "is not a folder" in sgpa("predict", tmp_path / "nowhere", photos).complaint
    assert "no run.json" in sgpa("predict", photos, photos).complaint
    lost = shutil.copytree(cells.parent, tmp_path / "lost")
    shutil.rmtree(lost / "trainings" / "kernel-mle-0")
    assert "does not exist" in sgpa("predict", lost / "cells" / "kernel-mle-0", photos).complaint
    (lost / "cells" / "kernel-sgpa-0" / "reader.json").write_text('{"kind": "smells"}')
    assert "does not describe a reader" in sgpa("predict", lost / "cells" / "kernel-sgpa-0", photos).complaint
    outcome = sgpa("predict", cells / "kernel-sgpa-0", photos, "--out", tmp_path)
    assert "is a folder; name a file" in outcome.complaint


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cifar10", "imdb", "cola", "zinc"])
def test_every_kind_of_recipe_reads_new_inputs(tmp_path, monkeypatch, name):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("sgpa.data.texts.imdb.IMDB_SIZES", (24, 6, 10))
    monkeypatch.setattr("sgpa.data.texts.cola.COLA_TRAIN", 30)
    monkeypatch.setattr("sgpa.data.texts.cola.COLA_TEST", 10)
    data = hub.write_all(tmp_path / "data")
    ElmoModel(ElmoConfig(filters=((1, 4),), width=4, cell=8)).save(tmp_path / "language-model")
    own = {
        "imdb": ["task.vocabulary=300", "task.max_tokens=32"],
        "cola": [f"task.language_model={tmp_path / 'language-model'}"],
    }
    run_folder = RunFolder.of(name, tmp_path / "runs", [*SMALL, *own.get(name, [])], data_dir=data)
    run_folder.claim()
    mle = plan(run_folder.recipe, "mle")
    calibrate(run_folder, mle, 0, train(run_folder, mle, 0))
    shutil.rmtree(data)
    Image.new("RGB", (32, 32), (10, 200, 30)).save(tmp_path / "green.png")
    given = {"cifar10": [tmp_path / "green.png"], "zinc": ["--text", "CCO"]}
    if name == "zinc":
        pytest.importorskip("rdkit", reason="the extra `graph` (rdkit) is not installed")
    words = given.get(name, ["--text", "a very good film"])
    done = sgpa("predict", run_folder.cell(mle, 0), *words, "--json")
    assert done.code == 0, done.err
    (answer,) = json.loads(done.out)
    if name == "zinc":
        assert answer["deviation"] > 0
        assert answer["smiles"] == "CCO"
    else:
        assert answer["label"] in open_trained(run_folder.cell(mle, 0)).classes
    assert isinstance(answer["trust"], bool)


def test_images_are_read_as_in_training(photos, tmp_path):
    grey = ImageReader(size=8, grey=True).read([photos / "0.png", photos / "1.png"])
    assert torch.allclose(grey.inputs, digits.load().test.inputs[:2], atol=1 / 255 + 1e-6)
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "same.png")
    (same,) = ImageReader().read([tmp_path / "same.png"]).inputs
    assert torch.equal(same, torch.from_numpy(pixels).permute(2, 0, 1))


@pytest.fixture
def tokenizer():
    return train_tokenizer(["a good film", "a bad film"], vocabulary=270)


def test_readers_survive_saving(tmp_path, tokenizer, photos):
    ElmoModel(ElmoConfig(filters=((1, 4),), width=4, cell=8)).save(tmp_path / "language-model")
    words = {"words": ("good", "film"), "max_words": 3}
    kinds = [
        (ImageReader(size=16), [photos], ()),
        (TextReader(tokenizer=tokenizer, max_tokens=9), [], ["a good film"]),
        (WordReader(**words), [], ["a good film that is too long"]),
        (WordReader(**words, language_model=str(tmp_path / "language-model")), [], ["good film"]),
        (MoleculeReader(atoms=("C", "O"), width=4), [], ["CCO"]),
    ]
    for i, (reader, files, texts) in enumerate(kinds):
        reader.save(tmp_path / str(i))
        back = readers.load(tmp_path / str(i))
        if not isinstance(reader, TextReader):  # tokenizers do not compare
            assert back == reader
        if isinstance(reader, MoleculeReader):
            pytest.importorskip("rdkit", reason="the extra `graph` (rdkit) is not installed")
        one, two = reader.read(files, texts), back.read(files, texts)
        assert one.metadata == two.metadata
        first, second = (r.inputs if isinstance(r.inputs, torch.Tensor) else None for r in (one, two))
        assert first is second is None or torch.equal(first, second)
    with pytest.raises(CheckpointError, match="does not exist"):
        readers.load(tmp_path)


def test_sentences_are_split_as_in_training():
    words = {"words": ("the", "film", ".", "Film."), "max_words": 5}
    raw, own = (WordReader(**words, tokens=tokens).read([], ["the Film."]) for tokens in ("raw", "tokenized"))
    assert raw.inputs.tolist() == [[2, 5]]
    assert own.inputs.tolist() == [[2, 3, 4]]


def test_texts_come_from_lines_tables_and_the_command(tmp_path, tokenizer):
    (tmp_path / "lines.txt").write_text("a good film\n\n a bad film \n", encoding="utf-8")
    (tmp_path / "table.csv").write_text("id,my words\n1,a film\n", encoding="utf-8")
    reader = TextReader(tokenizer=tokenizer, column="My words")
    rows = reader.read([tmp_path / "lines.txt", tmp_path / "table.csv"], ["good"])
    assert [
        (row["file"] and row["file"].rsplit("/", 1)[1], row["row"], row["text"]) for row in rows.metadata
    ] == [
        (None, 1, "good"),
        ("lines.txt", 1, "a good film"),
        ("lines.txt", 3, "a bad film"),
        ("table.csv", 1, "a film"),
    ]
    assert len(rows.inputs) == 4


@pytest.mark.parametrize("name", ["a.csv", "A.CSV", "a.txt"])
def test_a_string_that_is_the_name_of_a_file_of_texts_is_read_as_one(tmp_path, tokenizer, monkeypatch, name):
    (tmp_path / name).write_text("text\na good film\na film\n", encoding="utf-8")
    reader, rows = TextReader(tokenizer=tokenizer), 3 if name == "a.txt" else 2
    monkeypatch.chdir(tmp_path)
    for given in (name, [name], str(tmp_path / name)):
        assert len(read_given(reader, given).metadata) == rows
    for text in ("a film " * 1000 + ".csv", "a film"):  # no files
        assert [row["text"] for row in read_given(reader, text).metadata] == [text.strip()]
    assert [row["text"] for row in read_given(reader, ["b.csv"]).metadata] == ["b.csv"]
    with pytest.raises(InputError, match=r"b\.csv does not exist; check the path"):
        read_given(reader, "b.csv")


def test_arrays_and_columns_of_strings_are_texts(tokenizer):
    reader, texts = TextReader(tokenizer=tokenizer), ["a good film", "a bad film"]
    for given in (np.array(texts), np.array(texts, dtype=object), tuple(texts)):
        assert [row["text"] for row in read_given(reader, given).metadata] == texts


@pytest.mark.parametrize(
    ("name", "content", "column", "complaint"),
    [
        ("a.csv", "text\n", None, "no rows below its header"),
        ("a.csv", "", None, "no rows below its header"),
        ("a.csv", "foo,bar\n1,2\n", None, "which column holds the text"),
        ("a.csv", "foo,bar\n1,2\n", "words", "no column 'words'"),
        ("a.csv", "text,bar\n,2\n", None, "row 1: the text is empty"),
        ("a.txt", "\n \n", None, "is empty; write one input a line"),
        ("a.txt", b"\xff\xfe", None, "is not UTF-8"),
        ("a.pdf", "text", None, "expected .txt with one text a line"),
    ],
)
def test_errors_name_bad_texts(tmp_path, tokenizer, name, content, column, complaint):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    reader = TextReader(tokenizer=tokenizer)
    with pytest.raises(InputError, match=complaint):
        reader.read([tmp_path / name], column=column)
    with pytest.raises(InputError, match="nothing to predict"):
        reader.read([])
    with pytest.raises(InputError, match="a text is empty"):
        reader.read([], [" "])


def test_pipes_and_names_that_are_not_utf8_are_refused(tmp_path, tokenizer):
    for name, reader in (("a.txt", TextReader(tokenizer=tokenizer)), ("a.png", ImageReader())):
        os.mkfifo(tmp_path / name)
        with pytest.raises(InputError, match=rf"{name} is not a regular file"):
            reader.read([tmp_path / name])
        with pytest.raises(InputError, match=r"\\xff.txt: the name is not valid UTF-8"):
            reader.read([tmp_path / os.fsdecode(b"\xff.txt")])


def test_errors_name_bad_molecules_and_their_rows():
    pytest.importorskip("rdkit", reason="the extra `graph` (rdkit) is not installed")
    with pytest.raises(InputError, match=r"text, row 2: atom 'Br'.*text, row 3: invalid SMILES"):
        MoleculeReader(atoms=("C", "O")).read([], ["CO", "CBr", "x"])


class Fixed:
    """Always predicts the same."""

    def __init__(self, prediction):
        self.prediction = prediction

    def predict(self, inputs):
        assert len(inputs) == 2
        return self.prediction


def test_answers_above_the_limit_are_not_trusted():
    p = torch.tensor([[0.98, 0.02], [0.5, 0.5]])
    prediction = Classification(p, torch.zeros(2))
    rows = Rows(torch.zeros(2, 1), [{"file": "a"}, {"file": "b"}])
    sure, unsure = Trained(Fixed(prediction), ImageReader(), TrustRule(0.3), ("cat", "dog")).answers(rows)
    assert (sure["label"], sure["trust"], unsure["trust"]) == ("cat", True, False)
    assert unsure["entropy"] == pytest.approx(np.log(2))
    assert unsure["mutual_information"] == pytest.approx(np.log(2))
    assert (sure["reason"], unsure["reason"]) == ("", "unsure")
    never = Trained(Fixed(prediction), ImageReader(), TrustRule(-np.inf))
    assert not any(answer["trust"] for answer in never.answers(rows))
    values = Regression(torch.tensor([[1.0, 5.0], [3.0, 5.0]]), torch.tensor(1.0))
    one, two = Trained(Fixed(values), ImageReader(), TrustRule(2.5)).answers(rows)
    assert (one["value"], one["model_deviation"], one["trust"]) == (2.0, 1.0, False)
    assert two["deviation"] == pytest.approx(np.sqrt(2))
    assert two["trust"]
