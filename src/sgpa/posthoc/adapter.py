"""An adapter folder: everything that was fitted, beside the model that it belongs to."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor

from sgpa.core.errors import CheckpointError
from sgpa.core.files import read_json, read_tensors, write_json, write_tensors
from sgpa.core.saved_tensors import check_tensors
from sgpa.posthoc.head_gps import HeadGps
from sgpa.posthoc.novelty import TransformerNovelty
from sgpa.posthoc.scales import Scales

CONFIG, WEIGHTS = "adapter.json", "adapter.safetensors"
FORMAT = 1
DTYPES = (torch.float32, torch.float64, torch.int64)
NAMED = ("share", "head", "classes", "shift", "model", "model_type")


class SavedAdapter(TypedDict):
    """`adapter.json`."""

    format: Literal[1]
    layers: int
    modules: list[str]
    share: float
    head: str
    classes: bool
    shift: bool
    model: str
    model_type: str


@dataclass(frozen=True)
class Adapter:
    """GPs, scales and novelty of a model, with the names of the modules that they are attached to."""

    gps: tuple[HeadGps, ...]
    scales: Scales
    novelty: TransformerNovelty
    share: float  # length-scales in units of the median distance of queries
    modules: tuple[str, ...]
    head: str
    classes: bool  # whether outputs are logits of classes
    shift: bool  # whether the output of a token answers for the next one
    model: str  # fingerprint of the model's weights
    model_type: str

    def tensors(self) -> dict[str, Tensor]:
        """All numbers that are saved, by name."""
        tensors: dict[str, Tensor] = {"scales.data": self.scales.data, "scales.layers": self.scales.layers}
        tensors |= self.novelty.tensors()
        for i, gp in enumerate(self.gps):
            tensors |= gp.tensors(f"gp.{i}")
        return tensors

    def save(self, folder: Path) -> Path:
        """Write tensors, then the config: a folder with a config is complete."""
        write_tensors(folder / WEIGHTS, self.tensors())
        config: dict[str, Any] = {"format": FORMAT, "layers": len(self.gps)}
        config |= {name: getattr(self, name) for name in ("modules", *NAMED)}
        write_json(folder / CONFIG, config)
        return folder

    @staticmethod
    def load(folder: Path) -> "Adapter":
        """What `save` wrote."""
        config, file = read_json(folder / CONFIG, SavedAdapter), folder / WEIGHTS
        layers = config["layers"]
        if not 1 <= layers == len(config["modules"]):
            modules = len(config["modules"])
            raise CheckpointError(f"{folder / CONFIG}: layers={layers} for {modules} modules; it was damaged")
        tensors, _ = read_tensors(file)
        for name, tensor in tensors.items():
            if tensor.dtype not in DTYPES:
                raise CheckpointError(f"{file}: {name} holds {tensor.dtype} numbers; it was damaged")
        check_tensors(tensors, {"scales.data": (), "scales.layers": (layers,)}, file)
        return Adapter(
            gps=tuple(HeadGps.from_tensors(tensors, f"gp.{i}", file) for i in range(layers)),
            scales=Scales(tensors["scales.data"], tensors["scales.layers"]),
            novelty=TransformerNovelty.from_tensors(tensors, layers, file),
            modules=tuple(config["modules"]),
            **{name: config[name] for name in NAMED},
        )

    def on(self, device: torch.device) -> tuple[HeadGps, ...]:
        """The GPs on a device."""
        return tuple(gp.to(device) for gp in self.gps)
