"""An adapter folder: everything that was fitted, beside the model that it belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor

from sgpa.core.errors import CheckpointError
from sgpa.core.files import make_folder, read_json, read_tensors, write_json, write_tensors
from sgpa.core.saved_tensors import check_tensors
from sgpa.posthoc.card import FILE as CARD
from sgpa.posthoc.card import is_free, model_card
from sgpa.posthoc.feature_gp import FeatureGp
from sgpa.posthoc.head_gps import HeadGps
from sgpa.posthoc.layer_gps import LayerGps
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
    views: list[str]
    share: float
    head: str
    classes: bool
    shift: bool
    model: str
    model_type: str


@dataclass(frozen=True)
class Placed:
    """What a prediction needs, on one device."""

    gps: LayerGps
    novelty: TransformerNovelty


@dataclass(frozen=True)
class Adapter:
    """GPs, scales and novelty of a model, with the names of the modules that they are attached to."""

    gps: tuple[HeadGps, ...]
    head_gp: FeatureGp
    scales: Scales
    novelty: TransformerNovelty
    share: float  # length-scales in units of the median distance of queries
    modules: tuple[str, ...]
    head: str
    classes: bool  # whether outputs are logits of classes
    shift: bool  # whether the output of a token answers for the next one
    model: str  # fingerprint of the model's weights
    model_type: str
    placed: dict[torch.device, Placed] = field(default_factory=dict, init=False, compare=False, repr=False)

    def tensors(self) -> dict[str, Tensor]:
        """All numbers that are saved, by name."""
        tensors: dict[str, Tensor] = {"scales.data": self.scales.data, "scales.layers": self.scales.layers}
        tensors |= self.novelty.tensors()
        for i, gp in enumerate(self.gps):
            tensors |= gp.tensors(f"gp.{i}")
        return tensors | self.head_gp.tensors("gp.head")

    def save(self, folder: Path, name: str | None = None) -> Path:
        """Write a model card, tensors, then the config: a folder with a config is complete.

        Beside a model that has a card of its own, that card stays.

        Args:
            folder: where it is written.
            name: what the card tells readers to attach; the folder where it is left out.
        """
        make_folder(folder)
        if is_free(folder / CARD):
            (folder / CARD).write_text(model_card(self, name or str(folder)), encoding="utf-8")
        config: dict[str, Any] = {"format": FORMAT, "layers": len(self.gps)}
        config |= {"views": self.novelty.views.names}
        config |= {name: getattr(self, name) for name in ("modules", *NAMED)}
        write_tensors(folder / WEIGHTS, self.tensors(), config)
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
        tensors, written_with = read_tensors(file)
        if written_with not in (None, config):  # none in adapters of before
            raise CheckpointError(f"{folder / CONFIG} is not the one that {WEIGHTS} was written with")
        for name, tensor in tensors.items():
            if tensor.dtype not in DTYPES:
                raise CheckpointError(f"{file}: {name} holds {tensor.dtype} numbers; it was damaged")
        return Adapter.from_tensors(tensors, config, file)

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor], config: Mapping[str, Any], source: object) -> "Adapter":
        """What `tensors` returned, with the entries of a `SavedAdapter`."""
        layers = len(config["modules"])
        check_tensors(tensors, {"scales.data": (), "scales.layers": (layers + 1,)}, source)
        return Adapter(
            gps=tuple(HeadGps.from_tensors(tensors, f"gp.{i}", source) for i in range(layers)),
            head_gp=FeatureGp.from_tensors(tensors, "gp.head", source),
            scales=Scales(tensors["scales.data"], tensors["scales.layers"]),
            novelty=TransformerNovelty.from_tensors(tensors, config["views"], layers, source),
            modules=tuple(config["modules"]),
            **{name: config[name] for name in NAMED},
        )

    def on(self, device: torch.device) -> Placed:
        """GPs and novelty on a device; they are moved once."""
        if device not in self.placed:
            self.placed[device] = Placed(
                LayerGps.on(self.gps, self.head_gp, device), self.novelty.to(device, float64_device(device))
            )
        return self.placed[device]


def float64_device(device: torch.device) -> torch.device:
    """The device itself, or the CPU where it has no float64."""
    return torch.device("cpu") if device.type == "mps" else device
