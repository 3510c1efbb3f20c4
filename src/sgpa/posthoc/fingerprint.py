"""Whether a model is the one that a GP was fitted to."""

import hashlib

import torch
from torch import nn

ENTRIES = 64  # of every tensor that count


def weights_fingerprint(model: nn.Module) -> str:
    """Hash of names, types, shapes and some entries of all parameters; the same on every device."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        x = parameter.detach().flatten()
        some = x[:: max(1, len(x) // ENTRIES)][: 2 * ENTRIES].cpu().contiguous()
        digest.update(f"{name} {parameter.dtype} {tuple(parameter.shape)}".encode())
        digest.update(some.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def weights_version(model: nn.Module) -> tuple[tuple[int, int], ...]:
    """Changes whenever parameters are moved or written to; cheap enough for every prediction."""
    return tuple((p.data_ptr(), 0 if p.is_inference() else p._version) for p in model.parameters())
