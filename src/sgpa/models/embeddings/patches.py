"""Images as sequences of patches."""

import torch
from torch import Tensor, nn

from sgpa.core.errors import InputError
from sgpa.core.precision import require_finite
from sgpa.models.config import PatchConfig


class PatchEmbedding(nn.Module):
    """Linear patches plus learned positions: [B, C, h, w] -> [B, T, E], no padding."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: PatchConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.project = nn.Linear(config.channels * config.patch_size**2, width)
        self.positions = nn.Parameter(0.1 * torch.randn(config.max_tokens, width))
        mean, std = config.mean or (0.5,) * config.channels, config.std or (0.5,) * config.channels
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> tuple[Tensor, None]:
        """Tokens in row-major order of the patches."""
        c, size = self.config.channels, self.config.image_size
        if not isinstance(images, Tensor) or images.shape[1:] != (c, size, size):
            shape = list(images.shape) if isinstance(images, Tensor) else type(images).__name__
            raise InputError(f"expected images of shape [B, {c}, {size}, {size}], got {shape}")
        images = self.normalised(images).to(self.positions.dtype)
        require_finite(lambda: "the images have pixels that are NaN or infinite; clean them first", images)
        return self.project(self.patches(images)) + self.positions, None

    def normalised(self, images: Tensor) -> Tensor:
        """uint8 images as normalised floats; floats as they are, unless they are to be normalised too."""
        if images.dtype == torch.uint8:
            return (images / 255 - self.mean) / self.std
        if not images.is_floating_point():
            raise InputError(f"expected images as uint8, or as normalised floats, got {images.dtype}")
        return (images - self.mean) / self.std if self.config.normalise_floats else images

    def trimmed(self, images: Tensor, multiple: int = 1) -> Tensor:
        """Images have no padding."""
        del multiple
        return images

    def patches(self, images: Tensor) -> Tensor:
        """The pixels of each patch, channel by channel: [B, C, h, w] -> [B, T, C p p]."""
        p = self.config.patch_size
        cut = images.unflatten(3, (-1, p)).unflatten(2, (-1, p))  # [B, C, h/p, p, w/p, p]
        return cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
