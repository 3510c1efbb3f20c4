"""Whether images have the unit that a model was trained on: bytes, or floats of some range."""

import torch

from sgpa.core.errors import InputError
from sgpa.core.inputs import Inputs
from sgpa.models import PatchConfig
from sgpa.models.config.embedding import EmbeddingConfig

LARGEST_STD = 0.5  # of numbers from 0 to 1


def check_unit(embedding: EmbeddingConfig, images: Inputs) -> None:
    """Raise where images are bytes for a model of other floats, or pixels as floats for a model of bytes.

    Floats with negative entries were standardised, which a model of bytes takes as they are.
    """
    if not isinstance(embedding, PatchConfig) or not embedding.mean or not isinstance(images, torch.Tensor):
        return
    if images.dtype == torch.uint8 and embedding.normalise_floats and not _from_zero_to_one(embedding):
        unit = ", ".join(f"{mean:.3g}" for mean in embedding.mean)
        raise InputError(
            f"the images are uint8, and the model was trained on floats (mean {unit}); give floats of the "
            "same unit as in training"
        )
    if images.is_floating_point() and not embedding.normalise_floats and images.numel() and images.min() >= 0:
        raise InputError(
            f"the images are floats from {float(images.min()):.3g} to {float(images.max()):.3g}, and the "
            "model was trained on uint8 pixels; give uint8 from 0 to 255"
        )


def _from_zero_to_one(embedding: PatchConfig) -> bool:
    """Whether the floats of training were bytes divided by 255, as the model divides bytes itself."""
    inside = all(0 <= mean <= 1 for mean in embedding.mean)
    return inside and all(std <= LARGEST_STD for std in embedding.std)
