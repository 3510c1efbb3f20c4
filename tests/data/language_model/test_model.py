import json
from dataclasses import replace

import pytest
import torch

from sgpa.core.errors import CheckpointError, ConfigError, InputError
from sgpa.data.language_model.lstm import ClippedLstm
from sgpa.data.language_model.model import ElmoModel, reversed_rows
from sgpa.data.language_model.next_word import NextWord
from sgpa.data.texts.cola import characters
from support.language_models import TINY, elmo, elmo_with_words


def test_shape_of_features_and_layer_0():
    model = elmo()
    features = model.features(["the cat sat", ["the", "dog"]], dtype=torch.float64)
    assert features.shape == (2, 3, 3, 12)
    assert torch.equal(features[0, :, 0, :6], features[0, :, 0, 6:])
    assert torch.allclose(features[0, 0, 0], features[1, 0, 0])  # "the", independent of its context
    assert not torch.allclose(features[0, 0, 1], features[1, 0, 1])
    assert features[1, 2:].eq(0).all()
    assert not features.requires_grad


@pytest.mark.parametrize("clip", [None, 0.05])
def test_padding_does_not_change_features(clip):
    model = elmo(cell_clip=clip, output_clip=clip)
    rows = ["a", "the cat sat on the extraordinarily-long mat", "dogs ran", "x " * 30]
    together = model.features(rows, batch_size=4, dtype=torch.float64)
    for i, row in enumerate(rows):
        alone = model.features([row], dtype=torch.float64)[0]
        assert torch.allclose(together[i, : len(alone)], alone, atol=1e-12)
        assert together[i, len(alone) :].eq(0).all()


def test_directions_depend_on_words_of_one_side():
    model = elmo()
    rows = ["one two three four five", "one two xxxxx four five"]
    changed = (model.features(rows[:1]) - model.features(rows[1:]))[0].abs().amax(-1)  # of either direction
    assert changed[:, 0].nonzero().flatten().tolist() == [2]  # the encoded word
    before, after = model.features(rows)[:, :, 1:].split(6, -1)  # left to right, right to left
    left = (before[0] - before[1]).abs().amax((1, 2))
    right = (after[0] - after[1]).abs().amax((1, 2))
    assert (left > 0).tolist() == [False, False, True, True, True]
    assert (right > 0).tolist() == [True, True, True, False, False]


def test_gains_equal_the_softmax_of_the_neighbouring_states():
    model, without_words = elmo_with_words(), elmo()
    rows = ["the cat sat", "sat dog"]
    whole = model.features(rows, dtype=torch.float64)
    features = without_words.features(rows, dtype=torch.float64)
    assert whole.shape == (2, 3, 3, model.width) == (2, 3, 3, 14)
    assert torch.equal(whole[..., :12], features)
    gains = whole[..., 12:]
    assert torch.equal(gains[:, :, 0], gains[:, :, 1])
    assert torch.equal(gains[:, :, 0], gains[:, :, 2])
    head = model.next_word
    for row, words in enumerate([[3, 4, 5], [5, 0]]):
        for t, word in enumerate(words):
            for side, beside in enumerate((t - 1, t + 1)):
                if word == 0:
                    assert gains[row, t, 0, side] == 0  # unknown words have none
                elif 0 <= beside < len(words):
                    h = features[row, beside, 2, 6 * side : 6 * side + 6]
                    expected = (head.weight @ h + head.bias).log_softmax(0) - head.log_frequency
                    assert torch.allclose(gains[row, t, 0, side], expected[word])
    assert gains[1, 2:].eq(0).all()
    alone = model.features(["sat dog"], dtype=torch.float64)
    assert torch.allclose(whole[1, :2], alone[0], atol=1e-12)


def test_scoring_in_parts_does_not_change_gains(monkeypatch):
    head = elmo_with_words().next_word
    h, ids = torch.randn(3, 5, 6, dtype=torch.float64), torch.randint(6, (3, 5))
    whole = head.gain(h, ids)
    monkeypatch.setattr("sgpa.data.language_model.next_word.ROWS", 4)
    assert torch.allclose(head.gain(h, ids), whole)


def test_trimming_padding_characters_does_not_change_words():
    encoder = elmo().encoder
    words = characters(["a", "the", "abcdefghij", "abcdefghi", "abcdefg"], 12).long()
    alone = torch.cat([encoder(word.unsqueeze(0)) for word in words])
    assert torch.allclose(encoder(words), alone, atol=1e-12)
    trim, encoder.trimmed = encoder.trimmed, lambda spelled: spelled
    assert torch.allclose(encoder(words), alone, atol=1e-12)
    assert trim(words[:1]).shape == (1, 6)


def test_rounded_shapes_do_not_change_words():
    encoder = elmo().encoder
    words = characters(["a", "the", "ab"], 12).long()
    expected = encoder(words)
    assert encoder.rounded(words).shape == (512, 8)
    rounded = encoder.rounded(words)
    encoder.trimmed = lambda _: rounded  # as on a GPU
    assert torch.allclose(encoder(words), expected, atol=1e-12)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("cell", [6, 8])
def test_loop_over_words_equals_the_fused_lstm(cell):
    layer = ClippedLstm(6, cell).double()
    x = torch.randn(3, 7, 6, dtype=torch.float64)
    assert torch.allclose(layer.stepwise(x), layer.lstm(x)[0], atol=1e-12)
    clipped = ClippedLstm(6, 8, cell_clip=0.1, output_clip=0.02).double()
    assert clipped(x).abs().max() == 0.02


def test_rows_are_reversed_within_their_length():
    x = torch.tensor([[1, 2, 3, 0], [4, 5, 6, 7], [8, 0, 0, 0]])
    expected = [[3, 2, 1, 0], [7, 6, 5, 4], [8, 0, 0, 0]]
    assert reversed_rows(x, torch.tensor([3, 4, 1])).tolist() == expected


def test_sampled_softmax_has_the_optimum_of_the_full_softmax():
    torch.manual_seed(0)
    p = torch.rand(12).square() + 0.02
    p = p / p.sum()
    targets = p.multinomial(500, replacement=True)
    frequencies = targets.bincount(minlength=12) / 500
    head, h = NextWord(1, [str(i) for i in range(12)]), torch.ones(500, 1)
    adam = torch.optim.Adam(head.parameters(), lr=0.1)
    for step in range(400):
        adam.param_groups[0]["lr"] = 0.1 * (1 - step / 400)
        adam.zero_grad()
        head.sampled(h, targets, 8).backward()
        adam.step()
    learned = (head.weight[:, 0] + head.bias).softmax(0)
    assert (learned - frequencies).abs().sum() < 0.08


@pytest.mark.parametrize("words", [False, True])
def test_saved_language_model_is_loaded(words, tmp_path):
    model = elmo_with_words().float() if words else ElmoModel(TINY).eval()
    again = ElmoModel.load(model.save(tmp_path / "lm"))
    assert again.config == model.config
    assert torch.equal(again.features(["a cat sat"]), model.features(["a cat sat"]))
    data = json.loads((tmp_path / "lm" / "elmo.json").read_text())
    (tmp_path / "lm" / "elmo.json").write_text(json.dumps(data | {"width": 5}))
    with pytest.raises(CheckpointError, match="do not fit the config"):
        ElmoModel.load(tmp_path / "lm")
    (tmp_path / "lm" / "words.json").write_text("[1]")
    with pytest.raises(CheckpointError, match=r"words.json: \[0\]=1 \(allowed: a word\)"):
        ElmoModel.load(tmp_path / "lm")
    (tmp_path / "lm" / "elmo.json").write_text("{}")
    with pytest.raises(CheckpointError, match="does not describe a language model"):
        ElmoModel.load(tmp_path / "lm")


def test_bad_configs_and_sentences_are_refused():
    with pytest.raises(ConfigError, match=r"filters=.*cell=2.*dropout=1"):
        replace(TINY, filters=((99, 3),), cell=2, dropout=1)
    with pytest.raises(ConfigError, match="only projected outputs"):
        replace(TINY, cell=6, output_clip=3.0)
    with pytest.raises(InputError, match="a sentence without words; remove it"):
        ElmoModel(TINY).features(["a", " "])
