"""Frozen configs from which models are built."""

from sgpa.models.config.attention import DotProductConfig, KernelAttentionConfig, KernelConfig, SgpaConfig
from sgpa.models.config.embedding import FeatureConfig, GraphConfig, PatchConfig, TokenConfig, WordsConfig
from sgpa.models.config.model import ModelConfig, from_json, to_json
from sgpa.models.config.weights import (
    LinearHeadConfig,
    MeanFieldConfig,
    PointConfig,
    RandomFeatureConfig,
    SpectralConfig,
)

__all__ = [
    "DotProductConfig",
    "FeatureConfig",
    "GraphConfig",
    "KernelAttentionConfig",
    "KernelConfig",
    "LinearHeadConfig",
    "MeanFieldConfig",
    "ModelConfig",
    "PatchConfig",
    "PointConfig",
    "RandomFeatureConfig",
    "SgpaConfig",
    "SpectralConfig",
    "TokenConfig",
    "WordsConfig",
    "from_json",
    "to_json",
]
