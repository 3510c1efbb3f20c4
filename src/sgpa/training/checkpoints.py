"""The state of a training in one file: weights, Adam moments, random state, epoch."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import torch
from torch import Tensor, nn

from sgpa.core.arguments import fits
from sgpa.core.errors import CheckpointError
from sgpa.core.files import load_exactly, read_tensors, write_tensors
from sgpa.core.saved_tensors import check_tensors
from sgpa.training.fingerprint import Fingerprint

log = logging.getLogger(__name__)


class SavedDigests(TypedDict):
    """Digests of the data of a training."""

    train: str
    validation: str


class SavedSettings(TypedDict):
    """The settings of a training; the rest is compared as it is."""

    data: SavedDigests


class SavedTraining(TypedDict):
    """What `finished.json` says about a training; version 0.1 stored no settings."""

    fingerprint: str
    version: NotRequired[int]
    settings: NotRequired[SavedSettings]
    sha256: NotRequired[dict[str, str]]


class SavedNote(SavedTraining):
    """The note of a checkpoint."""

    epoch: int


def save_run(
    path: Path,
    model: nn.Module,
    optimiser: torch.optim.Adam,
    random: Mapping[str, Tensor],
    note: dict[str, Any],
) -> None:
    """Write all that a run needs to resume exactly; `random` are the states of its generators.

    The checkpoint before is kept beside it, in case this one is damaged later.
    """
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for name, moments in _moments(model, optimiser).items():
        tensors |= {f"adam.{key}.{name}": value for key, value in moments.items()}
    tensors |= {f"random.{device}": state for device, state in random.items()}
    if path.exists():
        os.replace(path, previous(path))
    write_tensors(path, tensors, note)


def previous(path: Path) -> Path:
    """Where the checkpoint before is kept."""
    return path.with_name(f"{path.stem}-previous{path.suffix}")


def read_run(path: Path) -> tuple[dict[str, Tensor], Any]:
    """The last checkpoint, or the one before where the last one is damaged or was not written."""
    try:
        return read_tensors(path)
    except CheckpointError as error:
        if not previous(path).exists():
            raise
        log.warning("%s; resuming from the checkpoint before", error)
        return read_tensors(previous(path))


def load_run(
    path: Path, model: nn.Module, optimiser: torch.optim.Adam, run: Fingerprint
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Restore model and optimiser; returns the note and the states of the generators.

    A checkpoint of a training with other settings or data is refused.
    """
    tensors, note = read_run(path)
    if not fits(note, SavedNote):
        raise CheckpointError(f"{path} has no valid epoch or training id; the file may be damaged")
    if not run.matches(note):
        raise CheckpointError(f"{path} is of a training {other(run, note)}")
    load_exactly(model, _under("model.", tensors), path)
    for name, parameter in model.named_parameters():
        if f"adam.step.{name}" in tensors:
            kinds = {"step": torch.zeros(()), "exp_avg": parameter, "exp_avg_sq": parameter}
            shapes = {f"adam.{key}.{name}": like.shape for key, like in kinds.items()}
            check_tensors(tensors, shapes, path)
            optimiser.state[parameter] = {
                key: tensors[f"adam.{key}.{name}"].to(parameter.device, like.dtype, copy=True)
                for key, like in kinds.items()
            }
    random = _under("random.", tensors)
    right = all(state.dtype == torch.uint8 and state.ndim == 1 for state in random.values())
    if not right or ("cpu" in random and random["cpu"].shape != torch.get_rng_state().shape):
        raise CheckpointError(f"{path} has no valid random-number states; the file may be damaged")
    return note | run.note, random


def other(run: Fingerprint, note: Mapping[str, Any]) -> str:
    """The end of an error message about files of another training."""
    difference = run.difference(note)
    shown = f" ({difference})" if difference else ""
    return f"with other settings or data{shown}; choose another directory or delete it"


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _moments(model: nn.Module, optimiser: torch.optim.Adam) -> dict[str, dict[str, Tensor]]:
    return {name: optimiser.state[p] for name, p in model.named_parameters() if p in optimiser.state}
