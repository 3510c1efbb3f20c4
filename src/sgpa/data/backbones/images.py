"""Hidden states of a pretrained network that reads images."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import torch
from torch import Tensor

from sgpa.core.arguments import checked
from sgpa.core.errors import InputError, check_fields
from sgpa.core.files import file_digest, read_json
from sgpa.core.inputs import Features
from sgpa.core.user_code import errors_of
from sgpa.data.backbones.cache import FeatureRows, cached
from sgpa.data.backbones.hidden_states import chosen_layer
from sgpa.data.backbones.locate import locate, need_transformers, open_network, read_config, weights_digest
from sgpa.data.backbones.texts import part_for
from sgpa.data.fetch import Progress
from sgpa.data.images.folder import read_images

BATCH = 16  # images that are read together
SIZE = 224  # pixels, where the network does not say
GRID = 8  # patches along a side; more are averaged
LARGEST = 4096
PREPROCESSOR = "preprocessor_config.json"


class Preprocessor(TypedDict):
    """What is read of `preprocessor_config.json`."""

    image_mean: NotRequired[list[float] | None]
    image_std: NotRequired[list[float] | None]
    crop_size: NotRequired[Any]
    size: NotRequired[Any]


@checked
@dataclass(frozen=True, kw_only=True)
class ImageBackbone:
    """A frozen network for images, and how its hidden states become features.

    Images are cut to centred squares of the network's size and normalised as its preprocessor says. Features
    are the class token, where there is one, and the patches; a grid finer than `grid` is averaged.

    Args:
        name: A folder that `save_pretrained` wrote, or a name on the hub.
        layer: The hidden state to use, 0 for the embeddings; by default the network's output.
        grid: The most patches along a side.
    """

    name: str
    layer: int | None = None
    grid: int = GRID

    def __post_init__(self) -> None:
        check_fields(
            "backbone",
            [
                ("layer", self.layer, self.layer is None or self.layer >= 0, "0 or more"),
                ("grid", self.grid, self.grid >= 1, "1 or more"),
            ],
        )

    @property
    def digest(self) -> str:
        """Identifies the network's weights."""
        return weights_digest(locate(self.name))

    def features(
        self, files: Sequence[Path], progress: Progress | None = None, *, keep: bool = False
    ) -> Features:
        """Features [N, T, F] of image files in half precision; arguments as in `TextBackbone.features`."""
        folder = locate(self.name)
        need_transformers()

        def compute(rows: slice) -> FeatureRows:
            return self._compute(_network(folder), files[rows])

        if keep:
            keys = [file_digest(file) for file in files]
            rows = cached(keys, f"images {self.layer} {self.grid} {self.digest}", compute, progress)
        else:
            rows = compute(slice(0, len(files)))
        return rows.padded(int(rows.lengths.max()))

    @torch.inference_mode()
    def _compute(self, network: "_Network", files: Sequence[Path]) -> FeatureRows:
        features: list[Tensor] = []
        for start in range(0, len(files), BATCH):
            pixels = torch.from_numpy(read_images(files[start : start + BATCH], network.size))
            states = network.states(pixels.permute(0, 3, 1, 2), self.layer, self.name)  # [B, T, F]
            features += [pooled_patches(state, self.grid) for state in states]
        return FeatureRows.of(features)


def pooled_patches(x: Tensor, grid: int) -> Tensor:
    """Tokens [T, F] with a square of patches at the end, which is averaged to at most `grid` x `grid`.

    What comes before the largest square of tokens (class and register tokens) stays.
    """
    side = math.isqrt(len(x))
    others = len(x) - side**2
    if others > 8:  # not a square of patches
        return x
    if side <= grid:
        return x
    patches = x[others:].T.unflatten(-1, (side, side))  # [F, side, side]
    small = torch.nn.functional.adaptive_avg_pool2d(patches, grid)  # [F, grid, grid]
    return torch.cat([x[:others], small.flatten(1).T])


class _Network:
    """A network with the size and normalisation of its images."""

    def __init__(self, folder: Path) -> None:
        config = read_config(folder)
        vision = config.get("vision_config", config)
        if "num_channels" not in vision and "image_size" not in vision:
            raise InputError(
                f"backbone {folder}: a {config['model_type']} network does not read images "
                "(no image_size, no num_channels)"
            )
        model = open_network(folder, use_safetensors=True)
        self.model: Any = part_for(model, "vision_model").eval()
        file = folder / PREPROCESSOR
        how = read_json(file, Preprocessor) if file.is_file() else {}
        sizes = (vision.get("image_size"), how.get("crop_size"), how.get("size"), SIZE)
        self.size = next(size for each in sizes if (size := _pixels(each)) is not None)
        mean, std = (how.get(name) or [0.5] * 3 for name in ("image_mean", "image_std"))
        if len(mean) != 3 or len(std) != 3 or not 1 <= self.size <= LARGEST or min(std) <= 0:
            raise InputError(
                f"backbone {folder}: images of size {self.size}, mean {mean}, std {std} (allowed: 1 to "
                f"{LARGEST} pixels, three channels)"
            )
        self.mean, self.std = (torch.tensor(each, dtype=torch.float32).view(3, 1, 1) for each in (mean, std))

    def states(self, pixels: Tensor, layer: int | None, name: str) -> Tensor:
        """Hidden states [B, T, F] of uint8 images [B, 3, size, size]."""
        images = (pixels.float() / 255 - self.mean) / self.std
        with errors_of(f"backbone {name} cannot be run"):
            out = self.model(pixel_values=images, output_hidden_states=layer is not None)
            if layer is None:
                state: Tensor = out.last_hidden_state
            else:
                state = out.hidden_states[chosen_layer(layer, len(out.hidden_states) - 1, name)]
            return state.flatten(2).mT if state.ndim == 4 else state  # convolutional: [B, F, h, w]


def _pixels(size: Any) -> int | None:
    """The side of images in a config of any version: a number, a pair, or a mapping."""
    if isinstance(size, dict):
        size = size.get("height") or size.get("shortest_edge")
    if isinstance(size, list) and size:
        size = size[0]
    return size if isinstance(size, int) and size else None


@lru_cache(maxsize=1)
def _network(folder: Path) -> _Network:
    with errors_of(f"backbone {folder} cannot be opened"):
        return _Network(folder)
