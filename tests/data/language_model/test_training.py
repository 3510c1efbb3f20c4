from dataclasses import replace

import pytest
import torch

from sgpa.core.errors import CheckpointError, ConfigError, InputError, NumericalError
from sgpa.core.files import read_tensors, write_tensors
from sgpa.data.language_model import training
from sgpa.data.language_model.training import (
    Corpus,
    LanguageProgress,
    LanguageRecipe,
    predictions,
    train_language_model,
)
from sgpa.data.texts.cola import characters
from support.language_models import TINY, elmo

TEXT = ["the cat sat on the mat.", "a dog ran to the cat.", "the dog sat.", "a cat ran on a mat."] * 12


def test_states_predict_words_that_they_have_not_read():
    torch.manual_seed(0)
    corpus = Corpus.of([["a", "b", "c"], ["b"]], 10, 12)
    model = elmo()
    ids, lengths = corpus.data.inputs, corpus.data.targets
    states, targets = predictions(model, corpus.spelled, ids, lengths)
    assert len(states) == len(targets) == 2 * (4 + 2)
    a, b, c = (ids[0, i].item() for i in (1, 2, 3))
    assert targets.tolist() == [a, b, c, 2, b, 2, 1, a, b, c, 1, b]
    # other characters for word b do not change the states that predict it in the first sentence
    spelled = corpus.spelled.clone()
    spelled[b] = characters(["zzz"], 12)[0]
    other, _ = predictions(model, spelled, ids, lengths)
    moved = (states - other).abs().amax(-1) > 0
    assert not moved[1]  # left to right, from "a"
    assert not moved[8]  # right to left, from "c"
    assert moved[2]


def test_frequencies_of_words():
    corpus = Corpus.of([["a", "b", "a"], ["a", "c"]], 10, 12)
    assert corpus.words == ("<unk>", "<S>", "</S>", "a", "b", "c")
    assert torch.allclose(corpus.log_frequency(4).exp(), torch.tensor([2, 2, 2, 3]) / 9)
    assert torch.allclose(
        corpus.log_frequency(6).exp(), torch.tensor([1, 2, 2, 3, 1, 1]) / 10
    )  # at least once


@pytest.mark.parametrize("negatives", [None, 10])
def test_training_lowers_perplexity_and_prefers_words_in_order(negatives):
    lines: list[LanguageProgress] = []
    recipe = LanguageRecipe(epochs=25, batch_size=8, lr=2e-2, negatives=negatives)
    before = torch.random.get_rng_state()
    model = train_language_model(TEXT, TINY, recipe, report=lines.append)
    assert torch.equal(before, torch.random.get_rng_state())
    measured = [line.perplexity for line in lines if line.perplexity is not None]
    assert len(measured) == 25
    assert measured[0] > 6
    assert measured[-1] < 4
    assert lines[-1].step == lines[-1].steps
    ordered = model.features(["the cat sat on the mat .", "a dog ran to the cat ."])[:, :, 0, -2:]
    shuffled = model.features(["mat the . on sat cat the", ". dog the ran cat a to"])[:, :, 0, -2:]
    assert ordered.mean() > 0.5  # gains in nats
    assert shuffled.mean() < ordered.mean() - 1


def test_stopped_training_is_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "SAVE_EVERY", 0.0)  # save every step
    monkeypatch.setattr(training, "REPORT_EVERY", 0.0)  # report every step
    recipe = LanguageRecipe(epochs=4, batch_size=8, negatives=4)
    expected: list[LanguageProgress] = []
    whole = train_language_model(TEXT, TINY, recipe, report=expected.append)

    def stop(line):
        if line.step >= 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_language_model(TEXT, TINY, recipe, directory=tmp_path, report=stop)
    lines: list[LanguageProgress] = []
    resumed = train_language_model(TEXT, TINY, recipe, directory=tmp_path, report=lines.append)
    assert [line.step for line in lines] == [line.step for line in expected[11:]]
    assert lines[0].loss == pytest.approx(expected[11].loss, rel=1e-5)  # same weights, rows and random words
    assert lines[-1].perplexity == pytest.approx(expected[-1].perplexity, rel=1e-2)
    lines.clear()
    finished = train_language_model(TEXT, TINY, recipe, directory=tmp_path, report=lines.append)
    assert not lines
    assert torch.equal(finished.features(["a cat"]), resumed.features(["a cat"]))
    assert torch.allclose(finished.features(["a cat"]), whole.features(["a cat"]), atol=1e-2)
    with pytest.raises(CheckpointError, match="other settings or texts"):
        train_language_model(TEXT[:5], TINY, recipe, directory=tmp_path)
    with pytest.raises(CheckpointError, match="other settings or texts"):
        train_language_model(TEXT, TINY, replace(recipe, lr=0.1), directory=tmp_path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda tensors, _: tensors.pop("encoder.project.bias"), "1 weights do not fit the config"),
        (lambda tensors, _: tensors["encoder.project.bias"].fill_(torch.nan), "NaN or infinite"),
        (lambda tensors, _: tensors.pop("adam.exp_avg.encoder.project.bias"), "exp_avg.* is missing"),
        (lambda _, note: note.pop("step"), "does not say at which step"),
        (lambda _, note: note.update(seconds="long"), "does not say at which step"),
    ],
)
def test_a_damaged_checkpoint_is_one_line(change, complaint, tmp_path):
    recipe = LanguageRecipe(epochs=1, batch_size=8, negatives=4)
    train_language_model(TEXT, TINY, recipe, directory=tmp_path)
    (file,) = tmp_path.iterdir()
    tensors, note = read_tensors(file)
    change(tensors, note)
    write_tensors(file, tensors, note)
    with pytest.raises(CheckpointError, match=complaint):
        train_language_model(TEXT, TINY, recipe, directory=tmp_path)


def test_a_loss_that_is_not_finite_is_an_error_and_nothing_is_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(training._Run, "loss", lambda self, *_: self.head.weight.sum() * torch.nan)
    monkeypatch.setattr(training, "SAVE_EVERY", 0.0)
    recipe = LanguageRecipe(epochs=1, batch_size=8, negatives=4)
    with pytest.raises(NumericalError, match="language model: the loss is nan by step 1; lower lr"):
        train_language_model(TEXT, TINY, recipe, directory=tmp_path)
    assert not list(tmp_path.iterdir())


class Clock:
    """A clock that goes on by a second whenever it is read."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        self.now += 1.0
        return self.now


def test_time_limit_ends_the_training(monkeypatch):
    lines: list[LanguageProgress] = []
    monkeypatch.setattr(training, "time", Clock())
    recipe = LanguageRecipe(epochs=1000, batch_size=8, minutes=1.0)
    train_language_model(TEXT, TINY, recipe, report=lines.append)
    assert lines[-2].seconds < 60 <= lines[-1].seconds
    assert lines[-1].step < lines[-1].steps
    assert lines[-1].perplexity is not None


def test_bad_settings_and_texts_are_refused():
    with pytest.raises(ConfigError, match=r"epochs=0"):
        LanguageRecipe(epochs=0)
    with pytest.raises(InputError, match="1 sentences; a language model needs 2 or more"):
        train_language_model(["one"], TINY)
