"""Whether images have the unit that a model was trained on: bytes, or floats of some range."""

import torch

from sgpa.core.errors import InputError
from sgpa.core.inputs import Inputs
from sgpa.models import PatchConfig
from sgpa.models.config.embedding import EmbeddingConfig

LARGEST_STD = 0.5  # of numbers from 0 to 1
BRIGHT = 10  # mean of floats that reach 255, rather than 1


def check_unit(embedding: EmbeddingConfig, images: Inputs) -> None:
    """Raise where images are bytes or floats of another unit than in training.

    Floats with negative entries were standardised, which a model of bytes takes as they are. A model of
    floats refuses what its own unit cannot explain: whole numbers above 1 where training had 0 to 1, and
    fractions from 0 to 1 where training had numbers up to 255.
    """
    if not isinstance(embedding, PatchConfig) or not embedding.mean or not isinstance(images, torch.Tensor):
        return
    floats = images.is_floating_point() and images.numel() > 0 and bool(images.isfinite().all())
    if embedding.normalise_floats:
        bytes_given = images.dtype == torch.uint8 and not _from_zero_to_one(embedding)
        if bytes_given or (floats and _another_unit(embedding, images)):
            unit = ", ".join(f"{mean:.3g}" for mean in embedding.mean)
            raise InputError(
                f"the images are {_shown(images)}, and the model was trained on floats (mean {unit}); give "
                "floats of the same unit as in training"
            )
    elif floats and images.min() >= 0:
        raise InputError(
            f"the images are {_shown(images)}, and the model was trained on uint8 pixels; give uint8 from 0 "
            "to 255"
        )


def _shown(images: torch.Tensor) -> str:
    if images.dtype == torch.uint8:
        return "uint8"
    return f"floats from {float(images.min()):.3g} to {float(images.max()):.3g}"


def _another_unit(embedding: PatchConfig, images: torch.Tensor) -> bool:
    """Whether floats from 0 are of another unit than those of training."""
    whole = bool((images == images.round()).all())
    if images.min() < 0:
        return False
    if images.max() > 1:
        return whole and _from_zero_to_one(embedding)
    return not whole and min(embedding.mean) >= BRIGHT


def _from_zero_to_one(embedding: PatchConfig) -> bool:
    """Whether the floats of training were bytes divided by 255, as the model divides bytes itself."""
    inside = all(0 <= mean <= 1 for mean in embedding.mean)
    return inside and all(std <= LARGEST_STD for std in embedding.std)
