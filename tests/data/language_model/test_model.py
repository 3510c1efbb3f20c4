import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from sgpa.core.errors import CheckpointError, ConfigError, InputError
from sgpa.data.language_model.model import ElmoConfig, ElmoModel, reversed_rows
from sgpa.data.language_model.next_word import NextWord
from sgpa.data.language_model.published import load_published
from sgpa.data.language_model.training import (
    Corpus,
    LanguageProgress,
    LanguageRecipe,
    predictions,
    train_language_model,
)
from sgpa.data.texts.cola import CHARACTERS, characters

TINY = ElmoConfig(filters=((1, 4), (2, 5), (3, 6)), character_width=4, max_characters=12, width=6, cell=8)
TEXT = ["the cat sat on the mat.", "a dog ran to the cat.", "the dog sat.", "a cat ran on a mat."] * 12


def elmo(**options):
    torch.manual_seed(0)
    return ElmoModel(replace(TINY, **options)).double().eval()


# the language model


def test_features_have_their_shape_and_layer_0_is_the_word_itself():
    model = elmo()
    features = model.features(["the cat sat", ["the", "dog"]], dtype=torch.float64)
    assert features.shape == (2, 3, 3, 12)
    assert torch.equal(features[0, :, 0, :6], features[0, :, 0, 6:])
    assert torch.allclose(features[0, 0, 0], features[1, 0, 0])  # "the", whatever comes after it
    assert not torch.allclose(features[0, 0, 1], features[1, 0, 1])
    assert features[1, 2:].eq(0).all()
    assert not features.requires_grad


@pytest.mark.parametrize("clip", [None, 0.05])
def test_features_of_a_padded_batch_equal_the_sentence_alone(clip):
    model = elmo(cell_clip=clip, output_clip=clip)
    rows = ["a", "the cat sat on the extraordinarily-long mat", "dogs ran", "x " * 30]
    together = model.features(rows, batch_size=4, dtype=torch.float64)
    for i, row in enumerate(rows):
        alone = model.features([row], dtype=torch.float64)[0]
        assert torch.allclose(together[i, : len(alone)], alone, atol=1e-12)
        assert together[i, len(alone) :].eq(0).all()


def test_each_direction_sees_its_own_side_only():
    model = elmo()
    rows = ["one two three four five", "one two xxxxx four five"]
    changed = (model.features(rows[:1]) - model.features(rows[1:]))[0].abs().amax(-1)  # of any direction
    assert changed[:, 0].nonzero().flatten().tolist() == [2]  # the spelled word itself
    before, after = model.features(rows)[:, :, 1:].split(6, -1)  # left to right, right to left
    left = (before[0] - before[1]).abs().amax((1, 2))
    right = (after[0] - after[1]).abs().amax((1, 2))
    assert (left > 0).tolist() == [False, False, True, True, True]
    assert (right > 0).tolist() == [True, True, True, False, False]


def test_predictions_pair_states_that_have_not_seen_the_word():
    torch.manual_seed(0)
    corpus = Corpus.of([["a", "b", "c"], ["b"]], 10, 12)
    model = elmo()
    ids, lengths = corpus.data.inputs, corpus.data.targets
    states, targets = predictions(model, corpus.spelled, ids, lengths)
    assert len(states) == len(targets) == 2 * (4 + 2)
    a, b, c = (ids[0, i].item() for i in (1, 2, 3))
    assert targets.tolist() == [a, b, c, 2, b, 2, 1, a, b, c, 1, b]
    # spelling of word b changes: the states that must predict it in the first sentence do not
    spelled = corpus.spelled.clone()
    spelled[b] = characters(["zzz"], 12)[0]
    other, _ = predictions(model, spelled, ids, lengths)
    moved = (states - other).abs().amax(-1) > 0
    assert not moved[1]  # left to right, from "a"
    assert not moved[8]  # right to left, from "c"
    assert moved[2]


WORDS = ["<unk>", "<S>", "</S>", "the", "cat", "sat"]


def knowing(**options):
    """A model that knows six words."""
    torch.manual_seed(1)
    head = NextWord(TINY.width, WORDS)
    head.log_frequency.copy_(torch.rand(6).log_softmax(0))
    torch.manual_seed(0)
    return ElmoModel(replace(TINY, **options), head).double().eval()


def test_gains_are_what_the_softmax_says_of_a_word_by_the_states_beside_it():
    model, plain = knowing(), elmo()
    rows = ["the cat sat", "sat dog"]
    found = model.features(rows, dtype=torch.float64)
    features = plain.features(rows, dtype=torch.float64)
    assert found.shape == (2, 3, 3, model.width) == (2, 3, 3, 14)
    assert torch.equal(found[..., :12], features)
    gains = found[..., 12:]
    assert torch.equal(gains[:, :, 0], gains[:, :, 1])
    assert torch.equal(gains[:, :, 0], gains[:, :, 2])
    head = model.next_word
    for row, words in enumerate([[3, 4, 5], [5, 0]]):
        for t, word in enumerate(words):
            for side, beside in enumerate((t - 1, t + 1)):
                if word == 0:
                    assert gains[row, t, 0, side] == 0  # nothing is said of a word that is not known
                elif 0 <= beside < len(words):
                    h = features[row, beside, 2, 6 * side : 6 * side + 6]
                    expected = (head.weight @ h + head.bias).log_softmax(0) - head.log_frequency
                    assert torch.allclose(gains[row, t, 0, side], expected[word])
    assert gains[1, 2:].eq(0).all()
    alone = model.features(["sat dog"], dtype=torch.float64)
    assert torch.allclose(found[1, :2], alone[0], atol=1e-12)


def test_many_states_are_scored_in_parts(monkeypatch):
    head = knowing().next_word
    h, ids = torch.randn(3, 5, 6, dtype=torch.float64), torch.randint(6, (3, 5))
    whole = head.gain(h, ids)
    monkeypatch.setattr("sgpa.data.language_model.next_word.ROWS", 4)
    assert torch.allclose(head.gain(h, ids), whole)


def test_frequencies_are_those_of_the_texts():
    corpus = Corpus.of([["a", "b", "a"], ["a", "c"]], 10, 12)
    assert corpus.words == ("<unk>", "<S>", "</S>", "a", "b", "c")
    assert torch.allclose(corpus.log_frequency(4).exp(), torch.tensor([2, 2, 2, 3]) / 9)
    assert torch.allclose(
        corpus.log_frequency(6).exp(), torch.tensor([1, 2, 2, 3, 1, 1]) / 10
    )  # at least once


def test_a_trained_model_finds_words_in_their_order_likelier():
    recipe = LanguageRecipe(epochs=25, batch_size=8, lr=2e-2)
    model = train_language_model(TEXT, TINY, recipe)
    right = model.features(["the cat sat on the mat .", "a dog ran to the cat ."])[:, :, 0, -2:]
    wrong = model.features(["mat the . on sat cat the", ". dog the ran cat a to"])[:, :, 0, -2:]
    assert right.mean() > 0.5
    assert wrong.mean() < right.mean() - 1


def test_trimming_columns_of_characters_changes_nothing():
    encoder = elmo().encoder
    words = characters(["a", "the", "abcdefghij", "abcdefghi", "abcdefg"], 12).long()
    alone = torch.cat([encoder(word.unsqueeze(0)) for word in words])
    assert torch.allclose(encoder(words), alone, atol=1e-12)
    trim, encoder.trimmed = encoder.trimmed, lambda spelled: spelled
    assert torch.allclose(encoder(words), alone, atol=1e-12)
    assert trim(words[:1]).shape == (1, 6)


def test_shapes_are_rounded_for_a_gpu_and_nothing_changes():
    encoder = elmo().encoder
    words = characters(["a", "the", "ab"], 12).long()
    expected = encoder(words)
    assert encoder.rounded(words).shape == (512, 8)
    rounded = encoder.rounded(words)
    encoder.trimmed = lambda _: rounded  # as on a GPU
    assert torch.allclose(encoder(words), expected, atol=1e-12)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("cell", [6, 8])
def test_the_loop_over_words_equals_the_fused_lstm(cell):
    layer = ClippedLstm(replace(TINY, cell=cell)).double()
    x = torch.randn(3, 7, 6, dtype=torch.float64)
    assert torch.allclose(layer.stepwise(x), layer.lstm(x)[0], atol=1e-12)
    clipped = ClippedLstm(replace(TINY, cell=8, cell_clip=0.1, output_clip=0.02)).double()
    assert clipped(x).abs().max() == 0.02


def test_rows_are_reversed_within_their_length():
    x = torch.tensor([[1, 2, 3, 0], [4, 5, 6, 7], [8, 0, 0, 0]])
    expected = [[3, 2, 1, 0], [7, 6, 5, 4], [8, 0, 0, 0]]
    assert reversed_rows(x, torch.tensor([3, 4, 1])).tolist() == expected


def test_a_few_drawn_words_lead_to_the_optimum_of_the_full_softmax():
    torch.manual_seed(0)
    p = torch.rand(12).square() + 0.02
    p = p / p.sum()
    targets = p.multinomial(500, replacement=True)
    seen = targets.bincount(minlength=12) / 500
    head, h = NextWord(1, [str(i) for i in range(12)]), torch.ones(500, 1)
    adam = torch.optim.Adam(head.parameters(), lr=0.03)
    for step in range(1500):
        adam.param_groups[0]["lr"] = 0.03 * (1 - step / 1500)
        adam.zero_grad()
        head.sampled(h, targets, 8).backward()
        adam.step()
    learned = (head.weight[:, 0] + head.bias).softmax(0)
    assert (learned - seen).abs().sum() < 0.08


@pytest.mark.parametrize("negatives", [None, 10])
def test_the_loss_falls_on_a_toy_corpus(negatives):
    lines: list[LanguageProgress] = []
    recipe = LanguageRecipe(epochs=25, batch_size=8, lr=2e-2, negatives=negatives)
    before = torch.random.get_rng_state()
    train_language_model(TEXT, TINY, recipe, report=lines.append)
    assert torch.equal(before, torch.random.get_rng_state())
    measured = [line.perplexity for line in lines if line.perplexity is not None]
    assert len(measured) == 25
    assert measured[0] > 6
    assert measured[-1] < 4
    assert lines[-1].step == lines[-1].steps


def test_a_stopped_training_goes_on_to_the_same_model(tmp_path, monkeypatch):
    recipe = LanguageRecipe(epochs=4, batch_size=8, negatives=4)
    whole = train_language_model(TEXT, TINY, recipe)
    monkeypatch.setattr("sgpa.data.language_model.training.SAVE_EVERY", 0.0)

    def stop(line):
        if line.step >= 12:
            raise KeyboardInterrupt

    monkeypatch.setattr("sgpa.data.language_model.training.REPORT_EVERY", 0)
    with pytest.raises(KeyboardInterrupt):
        train_language_model(TEXT, TINY, recipe, directory=tmp_path, report=stop)
    lines: list[LanguageProgress] = []
    resumed = train_language_model(TEXT, TINY, recipe, directory=tmp_path, report=lines.append)
    assert lines[0].step == 12
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name])
    lines.clear()
    finished = train_language_model(TEXT, TINY, recipe, directory=tmp_path, report=lines.append)
    assert not lines
    assert torch.equal(finished.features(["a cat"]), whole.features(["a cat"]))
    with pytest.raises(CheckpointError, match="other settings or texts"):
        train_language_model(TEXT[:5], TINY, recipe, directory=tmp_path)
    with pytest.raises(CheckpointError, match="other settings or texts"):
        train_language_model(TEXT, TINY, replace(recipe, lr=0.1), directory=tmp_path)


def test_time_bounds_a_training():
    lines: list[LanguageProgress] = []
    recipe = LanguageRecipe(epochs=100_000, batch_size=8, minutes=0.3 / 60)
    train_language_model(TEXT, TINY, recipe, report=lines.append)
    assert 0.3 <= lines[-1].seconds < 5
    assert lines[-1].perplexity is not None


@pytest.mark.parametrize("knows", [False, True])
def test_a_saved_language_model_comes_back_the_same(knows, tmp_path):
    model = knowing().float() if knows else ElmoModel(TINY).eval()
    again = ElmoModel.load(model.save(tmp_path / "lm"))
    assert again.config == model.config
    assert torch.equal(again.features(["a cat sat"]), model.features(["a cat sat"]))
    data = json.loads((tmp_path / "lm" / "elmo.json").read_text())
    (tmp_path / "lm" / "elmo.json").write_text(json.dumps(data | {"width": 5}))
    with pytest.raises(CheckpointError, match="do not fit the config"):
        ElmoModel.load(tmp_path / "lm")
    (tmp_path / "lm" / "words.json").write_text("[1]")
    with pytest.raises(CheckpointError, match="not a list of words"):
        ElmoModel.load(tmp_path / "lm")
    (tmp_path / "lm" / "elmo.json").write_text("{}")
    with pytest.raises(CheckpointError, match="does not describe a language model"):
        ElmoModel.load(tmp_path / "lm")


def test_mistakes_are_named():
    with pytest.raises(ConfigError, match=r"filters=.*cell=2.*dropout=1"):
        replace(TINY, filters=((99, 3),), cell=2, dropout=1)
    with pytest.raises(ConfigError, match="only projected outputs"):
        replace(TINY, cell=6, output_clip=3.0)
    with pytest.raises(ConfigError, match=r"epochs=0"):
        LanguageRecipe(epochs=0)
    with pytest.raises(InputError, match="drop it"):
        ElmoModel(TINY).features(["a", " "])
    with pytest.raises(InputError, match="a language model needs two"):
        train_language_model(["one"], TINY)


# published weights

OPTIONS = {
    "lstm": {
        "use_skip_connections": True,
        "projection_dim": 6,
        "cell_clip": 0.2,
        "proj_clip": 0.1,
        "dim": 8,
        "n_layers": 2,
    },
    "char_cnn": {
        "activation": "relu",
        "filters": [[1, 4], [2, 5]],
        "n_highway": 2,
        "embedding": {"dim": 4},
        "n_characters": CHARACTERS,
        "max_characters_per_token": 12,
    },
}


def official_arrays():
    """Random weights under the published names and in the published layouts."""
    rng = np.random.default_rng(0)

    def some(*shape):
        return rng.normal(size=shape, scale=0.7).astype(np.float32)

    arrays = {
        "char_embed": some(CHARACTERS - 1, 4),
        "CNN_proj/W_proj": some(9, 6),
        "CNN_proj/b_proj": some(6),
    }
    for i, (width, count) in enumerate(OPTIONS["char_cnn"]["filters"]):
        arrays |= {f"CNN/W_cnn_{i}": some(1, width, 4, count), f"CNN/b_cnn_{i}": some(count)}
    for i in range(2):
        for name in ("transform", "carry"):
            arrays |= {f"CNN_high_{i}/W_{name}": some(9, 9), f"CNN_high_{i}/b_{name}": some(9)}
        for direction in range(2):
            place = f"RNN_{direction}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            arrays |= {f"{place}/W_0": some(12, 32), f"{place}/B": some(32), f"{place}/W_P_0": some(8, 6)}
    return arrays


def write_official(folder, arrays, options=OPTIONS):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    (folder / "options.json").write_text(json.dumps(options))
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return folder / "options.json", folder / "weights.hdf5"


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_hand(arrays, words):
    """Features of one sentence from the definition of the published model, with no torch: [T, 3, 12]."""
    vectors = []
    for spelled in characters(["<S>", *words, "</S>"], 12).numpy():
        x = arrays["char_embed"][spelled - 1]  # [C, K]
        found = []
        for i, (width, _) in enumerate(OPTIONS["char_cnn"]["filters"]):
            W, b = arrays[f"CNN/W_cnn_{i}"][0], arrays[f"CNN/b_cnn_{i}"]  # [w, K, n]
            windows = [np.einsum("wk,wkn->n", x[j : j + width], W) + b for j in range(12 - width + 1)]
            found.append(np.maximum(np.max(windows, 0), 0))
        y = np.concatenate(found)
        for i in range(2):
            carry = sigmoid(y @ arrays[f"CNN_high_{i}/W_carry"] + arrays[f"CNN_high_{i}/b_carry"])
            new = y @ arrays[f"CNN_high_{i}/W_transform"] + arrays[f"CNN_high_{i}/b_transform"]
            y = carry * np.maximum(new, 0) + (1 - carry) * y
        vectors.append(y @ arrays["CNN_proj/W_proj"] + arrays["CNN_proj/b_proj"])
    layers = [np.concatenate([vectors, vectors], 1)]
    sides = []
    for direction in range(2):
        inputs, outputs = vectors[::-1] if direction else vectors, []
        for layer in range(2):
            place = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            c, h, states = np.zeros(8), np.zeros(6), []
            for x in inputs:
                gates = np.concatenate([x, h]) @ arrays[f"{place}/W_0"] + arrays[f"{place}/B"]
                i, j, f, o = np.split(gates, 4)
                c = np.clip(sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(j), -0.2, 0.2)
                h = np.clip((sigmoid(o) * np.tanh(c)) @ arrays[f"{place}/W_P_0"], -0.1, 0.1)
                states.append(h)
            inputs = [s + x for s, x in zip(states, inputs, strict=True)] if layer else states
            outputs.append(np.array(inputs[::-1] if direction else inputs))
        sides.append(outputs)
    layers += [np.concatenate(pair, 1) for pair in zip(*sides, strict=True)]
    return np.stack(layers, 1)[1:-1]


def test_published_weights_give_the_published_computation(tmp_path):
    arrays = official_arrays()
    model = load_published(*write_official(tmp_path, arrays))
    words = ["The", "naïve", "cat", "extraordinarily"]
    expected = by_hand(arrays, words)
    found = model.features([words, ["x"]])[0].numpy()
    assert np.abs(expected[:, 1]).max() == pytest.approx(0.1)  # clipping is at work
    assert np.allclose(found, expected, atol=1e-5)
    again = ElmoModel.load(model.save(tmp_path / "saved"))  # from here on without h5py
    assert torch.equal(again.features([words]), model.features([words]))


def test_published_files_that_do_not_fit_are_refused(tmp_path, monkeypatch):
    arrays = official_arrays()
    options, weights = write_official(tmp_path, {n: a for n, a in arrays.items() if n != "CNN/b_cnn_1"})
    with pytest.raises(CheckpointError, match="no array CNN/b_cnn_1"):
        load_published(options, weights)
    options, weights = write_official(tmp_path, arrays | {"char_embed": np.zeros((5, 4), np.float32)})
    with pytest.raises(CheckpointError, match=r"char_embed gives shape \(5, 4\).*\(261, 4\)"):
        load_published(options, weights)
    weights.write_bytes(b"not HDF5")
    with pytest.raises(CheckpointError, match="not a readable HDF5 file"):
        load_published(options, weights)
    with pytest.raises(InputError, match="does not exist"):
        load_published(options, tmp_path / "none.hdf5")
    (tmp_path / "odd.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"not the options\.json"):
        load_published(tmp_path / "odd.json", weights)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(InputError, match="pip install h5py"):
        load_published(options, weights)
