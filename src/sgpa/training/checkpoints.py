"""The state of a training run in one file: weights, Adam moments, random state, where it stands."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sgpa.core.errors import CheckpointError
from sgpa.core.files import read_tensors, write_tensors


def save_run(
    path: Path,
    model: nn.Module,
    optimiser: torch.optim.Adam,
    random: Mapping[str, Tensor],
    note: dict[str, Any],
) -> None:
    """Write everything a run needs to go on exactly where it stands; `random` are its generators' states."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for name, moments in _moments(model, optimiser).items():
        tensors |= {f"adam.{key}.{name}": value for key, value in moments.items()}
    tensors |= {f"random.{device}": state for device, state in random.items()}
    write_tensors(path, tensors, note)


def load_run(
    path: Path, model: nn.Module, optimiser: torch.optim.Adam, fingerprint: str
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Bring model and optimiser back; returns the note and the generators' states.

    The fingerprint names the run's settings: a checkpoint of another run is refused.
    """
    tensors, note = read_tensors(path)
    if note["fingerprint"] != fingerprint:
        raise CheckpointError(
            f"{path} belongs to a run with other settings; choose another directory or delete this one"
        )
    model.load_state_dict(_under("model.", tensors))
    for name, parameter in model.named_parameters():
        if f"adam.step.{name}" in tensors:
            optimiser.state[parameter] = {
                key: tensors[f"adam.{key}.{name}"].to(parameter.device, copy=True)
                for key in ("step", "exp_avg", "exp_avg_sq")
            }
    return dict(note), _under("random.", tensors)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _moments(model: nn.Module, optimiser: torch.optim.Adam) -> dict[str, dict[str, Tensor]]:
    return {name: optimiser.state[p] for name, p in model.named_parameters() if p in optimiser.state}
