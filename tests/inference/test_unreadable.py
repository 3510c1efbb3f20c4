"""Inputs that cannot be read get an answer of their own; the others are predicted as without them."""

import csv

import pytest
import torch
from PIL import Image

from sgpa.core.errors import InputError
from sgpa.core.types import Classification, Regression
from sgpa.data.texts.tokenizer import train_tokenizer, train_word_tokenizer
from sgpa.inference.answers import Trained, write_csv
from sgpa.inference.readers import ImageReader, MoleculeReader, TextReader, read_leniently
from sgpa.inference.trust import TrustRule
from support.fixed_novelty import FixedNovelty


class Brightness:
    """Predicts one of two classes by the sum of an input."""

    def predict(self, inputs):
        p = inputs.double().flatten(1).mean(1).div(255).clamp(0.01, 0.99)
        return Classification(torch.stack([p, 1 - p], -1), torch.zeros(len(p)))


class Atoms:
    """Predicts the number of atoms."""

    def predict(self, inputs):
        return Regression((inputs.nodes >= 0).sum(1).double().unsqueeze(0), torch.tensor(0.5))


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for i, level in enumerate((10, 200, 120)):
        Image.new("RGB", (16, 16), (level,) * 3).save(folder / f"{i}.png")
    (folder / "1b.png").write_text("no image")
    return folder


def test_a_broken_image_among_many_is_answered_unreadable(photos, tmp_path):
    trained = Trained(Brightness(), ImageReader(size=8), TrustRule(10.0), ("bright", "dark"))
    answers = trained.predict_files([photos])
    assert [answer["label"] for answer in answers] == ["dark", "bright", "unreadable", "dark"]
    assert [answer["trust"] for answer in answers] == [True, True, False, True]
    broken = answers[2]
    assert broken["file"] == str(photos / "1b.png")
    assert broken["reason"] == "unreadable: cannot be read as an image (no image format Pillow knows)"
    assert broken["probability"] is None
    alone = [trained.predict_files([photos / f"{i}.png"])[0] for i in range(3)]
    assert [a for a in answers if a is not broken] == alone
    write_csv(answers, tmp_path / "answers.csv")
    with (tmp_path / "answers.csv").open(encoding="utf-8") as file:
        line = list(csv.DictReader(file))[2]
    assert (line["label"], line["probability"], line["trust"]) == ("unreadable", "", "no")


def test_strict_reading_and_only_unreadable_inputs_are_errors(photos):
    trained = Trained(Brightness(), ImageReader(size=8), TrustRule(10.0), ("bright", "dark"))
    with pytest.raises(InputError, match=r"1b\.png cannot be read as an image"):
        trained.predict_files([photos], strict=True)
    with pytest.raises(InputError, match=r"1b\.png cannot be read as an image"):
        trained.predict_files([photos / "1b.png"])
    with pytest.raises(InputError, match="does not exist"):
        trained.predict_files([photos, "nowhere.png"])
    with pytest.raises(InputError, match="reads images"):
        trained.predict_files([photos], texts=["hello"])


def test_empty_texts_of_tables_and_lists_are_set_aside(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("id,text\n1,a good film\n2,\n3,   \n4,a bad film\n", encoding="utf-8")
    reader = TextReader(tokenizer=train_tokenizer(["a good film", "a bad film"], vocabulary=300))
    rows = read_leniently(reader, [table], ["", "direct"])
    assert rows.problems == {0: "the text is empty", 3: "the text is empty", 4: "the text is empty"}
    assert len(rows.metadata) == 6
    assert len(rows.inputs) == 3
    alone = reader.read([], ["direct", "a good film", "a bad film"]).inputs
    assert torch.equal(rows.inputs, alone)
    assert [one["row"] for one in rows.metadata] == [1, 2, 1, 2, 3, 4]
    assert read_leniently(reader, [], ["fine"]).problems == {}
    with pytest.raises(InputError, match="which column holds the text"):
        read_leniently(reader, [_table(tmp_path, "words\nx\n")])


def _table(folder, text):
    path = folder / "other.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_unknown_atoms_and_invalid_smiles_are_set_aside(tmp_path):
    pytest.importorskip("rdkit", reason="the extra `graph` (rdkit) is not installed")
    reader = MoleculeReader(atoms=("C", "O"), identifiers="walks", width=4)
    rule = TrustRule(10.0, residuals=(0.5, 1.0, 1.5, 2.0))
    table = _table(tmp_path, "smiles\nCCO\nCBr\nC(\nCC\n\n")
    answers = Trained(Atoms(), reader, rule).predict_files([table])
    assert [answer["value"] for answer in answers] == [3, None, None, 2]
    assert answers[1]["reason"].startswith("unreadable: atom 'Br' does not occur in the training data")
    assert answers[2]["reason"].startswith("unreadable: invalid SMILES 'C('")
    assert not any(answer["trust"] for answer in answers[1:3])
    first = answers[0]
    assert first["low_90"] < first["low_50"] < first["value"] < first["high_50"] < first["high_90"]
    assert first["high_90"] - first["value"] == pytest.approx(2.0 * 0.5**0.5)


def test_a_text_of_unknown_words_is_unfamiliar_whatever_the_rest_looks_like():
    reader = TextReader(tokenizer=train_word_tokenizer(["a good film", "a bad film"] * 2), distinct=True)
    rows = reader.read([], ["a good film !", "das war a film", "ein schlechter Streifen"])
    assert rows.unknown.tolist() == pytest.approx([0.0, 0.5, 1.0])
    rule = TrustRule(max_uncertainty=1.0, max_novelty=0.95)

    familiar = FixedNovelty(0.0)
    answers = Trained(Brightness(), reader, rule, ("x", "y"), familiar).answers(rows)
    assert [answer["reason"] for answer in answers] == ["", "", "unfamiliar"]
    assert [answer["novelty"] for answer in answers] == [0.0, 0.0, 1.0]
