"""The published ELMo files, from tiny made-up ones."""

import json
import sys

import numpy as np
import pytest
import torch

from sgpa.core.errors import CheckpointError, InputError
from sgpa.data.language_model.features import language_model_dir
from sgpa.data.language_model.model import ElmoModel
from sgpa.data.language_model.published import load_published
from sgpa.data.texts.cola import CHARACTERS, characters
from support.terminal import sgpa

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


def random_arrays():
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
            path = f"RNN_{direction}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            arrays |= {f"{path}/W_0": some(12, 32), f"{path}/B": some(32), f"{path}/W_P_0": some(8, 6)}
    return arrays


def write_published(folder, arrays, options=OPTIONS):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    (folder / "options.json").write_text(json.dumps(options))
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return folder / "options.json", folder / "weights.hdf5"


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_hand(arrays, words):
    """Features of one sentence from the definition of the published model, in numpy: [T, 3, 12]."""
    vectors = []
    for spelled in characters(["<S>", *words, "</S>"], 12).numpy():
        x = arrays["char_embed"][spelled - 1]  # [C, K]
        maxima = []
        for i, (width, _) in enumerate(OPTIONS["char_cnn"]["filters"]):
            W, b = arrays[f"CNN/W_cnn_{i}"][0], arrays[f"CNN/b_cnn_{i}"]  # [w, K, n]
            windows = [np.einsum("wk,wkn->n", x[j : j + width], W) + b for j in range(12 - width + 1)]
            maxima.append(np.maximum(np.max(windows, 0), 0))
        y = np.concatenate(maxima)
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
            path = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            c, h, states = np.zeros(8), np.zeros(6), []
            for x in inputs:
                gates = np.concatenate([x, h]) @ arrays[f"{path}/W_0"] + arrays[f"{path}/B"]
                i, j, f, o = np.split(gates, 4)
                c = np.clip(sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(j), -0.2, 0.2)
                h = np.clip((sigmoid(o) * np.tanh(c)) @ arrays[f"{path}/W_P_0"], -0.1, 0.1)
                states.append(h)
            inputs = [s + x for s, x in zip(states, inputs, strict=True)] if layer else states
            outputs.append(np.array(inputs[::-1] if direction else inputs))
        sides.append(outputs)
    layers += [np.concatenate(pair, 1) for pair in zip(*sides, strict=True)]
    return np.stack(layers, 1)[1:-1]


def test_published_weights_give_the_features_of_the_definition(tmp_path):
    arrays = random_arrays()
    model = load_published(*write_published(tmp_path, arrays))
    words = ["The", "naïve", "cat", "extraordinarily"]
    expected = by_hand(arrays, words)
    features = model.features([words, ["x"]])[0].numpy()
    assert np.abs(expected[:, 1]).max() == pytest.approx(0.1)  # outputs are clipped
    assert np.allclose(features, expected, atol=1e-5)
    again = ElmoModel.load(model.save(tmp_path / "saved"))  # without h5py
    assert torch.equal(again.features([words]), model.features([words]))


def test_published_files_that_do_not_match_are_refused(tmp_path, monkeypatch):
    arrays = random_arrays()
    options, weights = write_published(tmp_path, {n: a for n, a in arrays.items() if n != "CNN/b_cnn_1"})
    with pytest.raises(CheckpointError, match="no array CNN/b_cnn_1"):
        load_published(options, weights)
    options, weights = write_published(tmp_path, arrays | {"char_embed": np.zeros((5, 4), np.float32)})
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
    with pytest.raises(InputError, match=r"pip install h5py"):
        load_published(options, weights)


@pytest.mark.usefixtures("own_cache")
def test_command_reads_published_files_into_the_folder_of_cola(tmp_path):
    options, weights = write_published(tmp_path, random_arrays())
    outcome = sgpa("data", "language-model", "--published", weights, options)  # in either order
    assert outcome.code == 0, outcome.complaint
    assert str(language_model_dir()) in "".join(outcome.out.split())
    saved, expected = ElmoModel.load(language_model_dir()), load_published(options, weights)
    assert torch.equal(saved.features(["a cat sat"]), expected.features(["a cat sat"]))
    again = sgpa("data", "language-model", "--published", options, weights)
    assert "has a language model; delete it" in again.complaint
    training = sgpa("data", "language-model", "--data-dir", tmp_path)
    assert "was not trained here" in training.complaint
    other = sgpa("data", "language-model", "--published", options, weights, "--out", tmp_path / "other")
    assert other.code == 0
    assert ElmoModel.load(tmp_path / "other").config == saved.config
    missing = sgpa(
        "data", "language-model", "--published", options, tmp_path / "none.hdf5", "--out", tmp_path / "x"
    )
    assert "does not exist" in missing.complaint
