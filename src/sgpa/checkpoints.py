"""The state of a training run in one file: weights, Adam moments, random state, where it stands."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sgpa.errors import CheckpointError
from sgpa.files import read_tensors, write_tensors


def save_run(path: Path, model: nn.Module, optimiser: torch.optim.Adam, note: dict[str, Any]) -> None:
    """Write everything a run needs to go on exactly where it stands."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for name, moments in _moments(model, optimiser).items():
        tensors |= {f"adam.{key}.{name}": value for key, value in moments.items()}
    tensors["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    write_tensors(path, tensors, note)


def load_run(path: Path, model: nn.Module, optimiser: torch.optim.Adam, fingerprint: str) -> dict[str, Any]:
    """Bring model, optimiser and random state back; returns the note.

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
                key: tensors[f"adam.{key}.{name}"].to(
                    parameter.device if key != "step" else torch.device("cpu"), copy=True
                )
                for key in ("step", "exp_avg", "exp_avg_sq")
            }
    torch.set_rng_state(tensors["random.cpu"])
    if torch.cuda.is_available() and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"])
    return dict(note)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _moments(model: nn.Module, optimiser: torch.optim.Adam) -> dict[str, dict[str, Tensor]]:
    return {name: optimiser.state[p] for name, p in model.named_parameters() if p in optimiser.state}
