"""Saving a model as weights and config, and starting one model from another's weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sgpa.core.errors import CheckpointError
from sgpa.core.files import (
    check_weights,
    make_folder,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
)
from sgpa.core.saved_tensors import check_tensors
from sgpa.models.config import ModelConfig, from_json, to_json

VARIATIONAL = (
    "Z_g",
    "places_g",
    "v_g",
    "raw_s_g",
    "W_s.weight",
    "W_s.bias",
    "W_log_s.weight",
    "W_log_s.bias",
    ".rho",
)

WEIGHTS = "model.safetensors"
SCALE = "likelihood.log_b"  # of a regression, where it was refitted after training


def save(config: ModelConfig, weights: Mapping[str, Tensor], directory: Path) -> Path:
    """Write the weights, then the config: a directory with a config is complete."""
    make_folder(directory)
    write_tensors(directory / WEIGHTS, weights)
    write_json(directory / "config.json", to_json(config))
    return directory


def load(directory: Path) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Config and weights of a saved model."""
    config = from_json(read_json(directory / "config.json", dict[str, Any]))
    if not isinstance(config, ModelConfig):
        raise CheckpointError(f"{directory / 'config.json'} does not describe a model")
    weights = read_tensors(directory / WEIGHTS)[0]
    layers = {name.split(".")[1] for name in weights if name.startswith("layers.")}
    if len(layers) != config.depth:  # before a model of that depth is built
        raise CheckpointError(f"{directory}: config.json has depth {config.depth}, the weights {len(layers)}")
    return config, weights


@torch.no_grad()
def warm_start(model: nn.Module, weights: Mapping[str, Tensor]) -> list[str]:
    """Copy every parameter that is not variational from the weights of a trained point model.

    Args:
        model: the model to start.
        weights: must contain all parameters of the model but its variational ones.

    Returns:
        The names of the parameters that keep their initial values.
    """
    fresh = []
    for name, parameter in model.state_dict().items():
        if name.endswith(VARIATIONAL):
            fresh.append(name)
        elif name not in weights or weights[name].shape != parameter.shape:
            given = tuple(weights[name].shape) if name in weights else "nothing"
            raise CheckpointError(
                f"warm start: {name} needs shape {tuple(parameter.shape)}, the source has {given}; "
                "train it with kernel attention and the same depth, heads, width and embedding"
            )
        else:
            check_weights({name: weights[name]}, "warm start", {name: parameter})
            parameter.copy_(weights[name])
    return fresh


def scale_of(model: nn.Module) -> dict[str, Tensor]:
    """The scale of a regression's likelihood, to be saved with a calibration; empty for classes."""
    return {name: value.detach().clone() for name, value in model.named_parameters() if name == SCALE}


@torch.no_grad()
def set_scale(model: nn.Module, calibration: Mapping[str, Tensor]) -> None:
    """Use the scale of a calibration, where it has one."""
    if SCALE not in calibration:
        return
    if SCALE not in dict(model.named_parameters()):
        raise CheckpointError(f"the calibration has a {SCALE}, which is of a model that predicts numbers")
    check_tensors(calibration, {SCALE: ()}, "calibration")
    model.get_parameter(SCALE).copy_(calibration[SCALE])
