"""Read the published ELMo weights: an options.json and an HDF5 file. Needs the extra `elmo` (h5py)."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sgpa.core.errors import CheckpointError, InputError
from sgpa.core.files import read_json
from sgpa.data.language_model.lstm import ClippedLstm
from sgpa.data.language_model.model import CharacterEncoder, ElmoConfig, ElmoModel, Highway

FORGET_BIAS = 1.0  # added by the cells of the original code, and not stored with the weights


def load_published(options: str | Path, weights: str | Path) -> ElmoModel:
    """The language model of a published pair of files, in evaluation mode.

    Cells and outputs are clipped as in training. Every sentence starts from a state of zero, so its features
    do not depend on other sentences.

    Args:
        options: The options JSON file.
        weights: The HDF5 file that belongs to it.

    Returns:
        The model; a model that was saved with `save` is loaded without h5py.

    Example:
        >>> model = load_published("options.json", "weights.hdf5")  # doctest: +SKIP
        >>> model.save("language-model")  # doctest: +SKIP
    """
    config = published_config(Path(options))
    try:
        import h5py  # noqa: PLC0415 (an optional dependency)
    except ImportError:
        raise InputError("HDF5 weights need the h5py package: pip install h5py") from None
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


def published_config(options: Path) -> ElmoConfig:
    """The config of an options.json."""
    data = read_json(options, dict[str, Any])
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
    """Copies the arrays of an HDF5 file into a model; an error names the array that does not fit."""

    def __init__(self, file: Any, path: Path) -> None:
        self.file, self.path = file, path

    def fill(self, model: ElmoModel) -> None:
        """Fill every parameter of the model."""
        self._encoder(model.encoder)
        for direction, lstms in enumerate((model.ahead, model.back)):
            for i, layer in enumerate(lstms):
                assert isinstance(layer, ClippedLstm)
                self._lstm(f"RNN_{direction}/RNN/MultiRNNCell/Cell{i}/LSTMCell", layer)

    def _encoder(self, encoder: CharacterEncoder) -> None:
        self._copy(encoder.characters.weight[1:], self._array("char_embed"), "char_embed")  # row 0: padding
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

    def _lstm(self, path: str, layer: ClippedLstm) -> None:
        """W_0 [input + output, 4 cell] with gates i, g, f, o; torch keeps i, f, g, o in rows."""

        def reordered(columns: Tensor) -> Tensor:
            i, g, f, o = columns.chunk(4, -1)
            return torch.cat([i, f, g, o], -1)

        n, cell, weights = layer.lstm.input_size, layer.lstm.hidden_size, layer.weights
        self._put(weights["weight_ih_l0"], f"{path}/W_0", lambda w: reordered(w)[:n].mT)
        self._put(weights["weight_hh_l0"], f"{path}/W_0", lambda w: reordered(w)[n:].mT)
        self._put(weights["bias_ih_l0"], f"{path}/B", reordered)
        weights["bias_ih_l0"][cell : 2 * cell] += FORGET_BIAS
        weights["bias_hh_l0"].zero_()
        if layer.lstm.proj_size:
            self._put(weights["weight_hr_l0"], f"{path}/W_P_0", lambda w: w.mT)

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
