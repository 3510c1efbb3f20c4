"""Whether a model is the one that a GP was fitted to."""

import hashlib
from dataclasses import dataclass

import torch
from torch import nn
from torch.linalg import vector_norm

ENTRIES = 64  # of every tensor that count
ROUNDING = 1e-9  # of a norm


def weights_fingerprint(model: nn.Module) -> str:
    """Hash of names, types, shapes and some entries of all parameters; the same on every device."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        x = parameter.detach().flatten()
        some = x[:: max(1, len(x) // ENTRIES)][: 2 * ENTRIES].cpu().contiguous()
        digest.update(f"{name} {parameter.dtype} {tuple(parameter.shape)}".encode())
        digest.update(some.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class WeightSums:
    """Sum and norm of every parameter: a change of a single entry shows, being moved does not."""

    sums: tuple[tuple[float, float, int], ...]  # sum, norm and number of entries

    @staticmethod
    def of(model: nn.Module) -> "WeightSums":
        """In float64 where the device has it; entries are not copied."""
        sums = []
        for p in model.parameters():
            x, dtype = p.detach(), torch.float32 if p.device.type == "mps" else torch.float64
            sums.append((float(x.sum(dtype=dtype)), float(vector_norm(x, dtype=dtype)), x.numel()))
        return WeightSums(tuple(sums))

    def agree(self, other: "WeightSums") -> bool:
        """Equal to rounding, which differs between devices."""

        def near(one: tuple[float, float, int], two: tuple[float, float, int]) -> bool:
            allowed = ROUNDING * one[1]
            return abs(one[1] - two[1]) <= allowed and abs(one[0] - two[0]) <= allowed * one[2] ** 0.5

        return len(self.sums) == len(other.sums) and all(map(near, self.sums, other.sums))


def weights_version(model: nn.Module) -> tuple[tuple[int, int], ...]:
    """Changes whenever parameters are moved or written to; cheap enough for every prediction."""
    return tuple((p.data_ptr(), 0 if p.is_inference() else p._version) for p in model.parameters())


def adapters_in_use(model: nn.Module) -> tuple[tuple[str, bool], ...]:
    """Names of the adapters of PEFT in every layer that has some, and whether they are off."""
    return tuple(
        (str(module.active_adapters), bool(module.disable_adapters))
        for module in model.modules()
        if isinstance(getattr(module, "disable_adapters", None), bool)
    )
