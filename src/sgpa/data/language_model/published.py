"""Reading the published ELMo weights: an options.json and an HDF5 file (needs the `h5py` package)."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sgpa.core.errors import CheckpointError, InputError
from sgpa.core.files import read_json
from sgpa.data.language_model.model import CharacterEncoder, ClippedLstm, ElmoConfig, ElmoModel, Highway

FORGET_BIAS = 1.0  # added inside the cells the weights were trained in, and not stored with them


def load_official(options: str | Path, weights: str | Path) -> ElmoModel:
    """The model of a published pair of files, in evaluation mode; `.save` it to do without h5py from then on.

    Cells and outputs are clipped as they were in training. Every sentence starts from a blank memory, so that
    its features do not depend on what was read before it.
    """
    config = official_config(Path(options))
    try:
        import h5py  # noqa: PLC0415 (an optional dependency)
    except ImportError:
        raise InputError("reading HDF5 weights needs the h5py package: pip install h5py") from None
    path = Path(weights)
    if not path.is_file():
        raise InputError(f"{path} does not exist, or is not a file; check the path")
    model = ElmoModel(config)
    try:
        with h5py.File(path, "r") as file, torch.no_grad():
            _Reader(file, path).fill(model)
    except OSError as error:
        raise CheckpointError(f"{path} is not a readable HDF5 file ({error}); get it again") from None
    return model.eval()


def official_config(options: Path) -> ElmoConfig:
    """What an options.json says, as a config."""
    data = read_json(options)
    try:
        lstm, cnn = data["lstm"], data["char_cnn"]
        return ElmoConfig(
            filters=cnn["filters"],
            character_width=cnn["embedding"]["dim"],
            max_characters=cnn["max_characters_per_token"],
            activation=cnn["activation"],
            highways=cnn["n_highway"],
            width=lstm["projection_dim"],
            cell=lstm["dim"],
            depth=lstm["n_layers"],
            skip=lstm["use_skip_connections"],
            cell_clip=lstm["cell_clip"],
            output_clip=lstm["proj_clip"],
        )
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"{options} is not the options.json of a published ELMo model (missing or odd: {error})"
        ) from None


class _Reader:
    """Arrays of an HDF5 file, with an error that names the one that does not fit."""

    def __init__(self, file: Any, path: Path) -> None:
        self.file, self.path = file, path

    def fill(self, model: ElmoModel) -> None:
        """Every parameter of the model from the array that holds it."""
        self._encoder(model.encoder)
        for direction, lstms in enumerate((model.ahead, model.back)):
            for i, layer in enumerate(lstms):
                assert isinstance(layer, ClippedLstm)
                self._lstm(f"RNN_{direction}/RNN/MultiRNNCell/Cell{i}/LSTMCell", layer)

    def _encoder(self, encoder: CharacterEncoder) -> None:
        self._copy(encoder.characters.weight[1:], self._array("char_embed"), "char_embed")  # row 0: no word
        encoder.characters.weight[0] = 0
        for i, conv in enumerate(encoder.filters):
            assert isinstance(conv, nn.Conv1d)
            self._put(conv.weight, f"CNN/W_cnn_{i}", lambda w: w[0].permute(2, 1, 0))  # [1, w, K, n]
            self._put(conv.bias, f"CNN/b_cnn_{i}")
        for i, highway in enumerate(encoder.highways):
            assert isinstance(highway, Highway)
            for name, linear in (("transform", highway.transform), ("carry", highway.gate)):
                self._put(linear.weight, f"CNN_high_{i}/W_{name}", lambda w: w.mT)
                self._put(linear.bias, f"CNN_high_{i}/b_{name}")
        self._put(encoder.project.weight, "CNN_proj/W_proj", lambda w: w.mT)
        self._put(encoder.project.bias, "CNN_proj/b_proj")

    def _lstm(self, place: str, layer: ClippedLstm) -> None:
        """W_0 [input + output, 4 cell] with gates i, g, f, o; torch keeps i, f, g, o in rows."""

        def reordered(columns: Tensor) -> Tensor:
            i, g, f, o = columns.chunk(4, -1)
            return torch.cat([i, f, g, o], -1)

        n, cell, own = layer.lstm.input_size, layer.lstm.hidden_size, layer.weights
        self._put(own["weight_ih_l0"], f"{place}/W_0", lambda w: reordered(w)[:n].mT)
        self._put(own["weight_hh_l0"], f"{place}/W_0", lambda w: reordered(w)[n:].mT)
        self._put(own["bias_ih_l0"], f"{place}/B", reordered)
        own["bias_ih_l0"][cell : 2 * cell] += FORGET_BIAS
        own["bias_hh_l0"].zero_()
        if layer.lstm.proj_size:
            self._put(own["weight_hr_l0"], f"{place}/W_P_0", lambda w: w.mT)

    def _put(self, parameter: Any, name: str, change: Any = lambda w: w) -> None:
        self._copy(parameter, change(self._array(name)), name)

    def _array(self, name: str) -> Tensor:
        if name not in self.file:
            raise CheckpointError(f"{self.path} has no array {name}; does it belong to this options.json?")
        return torch.from_numpy(np.asarray(self.file[name][...], dtype=np.float32))

    def _copy(self, parameter: Tensor, value: Tensor, name: str) -> None:
        if parameter.shape != value.shape:
            raise CheckpointError(
                f"{self.path}: {name} gives shape {tuple(value.shape)}, options.json asks for "
                f"{tuple(parameter.shape)}; the files do not belong together"
            )
        parameter.copy_(value)
