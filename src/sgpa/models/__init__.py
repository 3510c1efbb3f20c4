"""Transformers for images, texts and graphs, described by frozen configs."""

from sgpa.models.config import (
    DotProductConfig,
    FeatureConfig,
    GraphConfig,
    KernelAttentionConfig,
    KernelConfig,
    LinearHeadConfig,
    MeanFieldConfig,
    ModelConfig,
    PatchConfig,
    PointConfig,
    RandomFeatureConfig,
    SgpaConfig,
    SpectralConfig,
    TokenConfig,
    WordsConfig,
    from_json,
    to_json,
)
from sgpa.models.layer import Layer
from sgpa.models.sampled import SampledPredictor
from sgpa.models.transformer import States, Transformer

load = Transformer.from_pretrained

__all__ = [
    "DotProductConfig",
    "FeatureConfig",
    "GraphConfig",
    "KernelAttentionConfig",
    "KernelConfig",
    "Layer",
    "LinearHeadConfig",
    "MeanFieldConfig",
    "ModelConfig",
    "PatchConfig",
    "PointConfig",
    "RandomFeatureConfig",
    "SampledPredictor",
    "SgpaConfig",
    "SpectralConfig",
    "States",
    "TokenConfig",
    "Transformer",
    "WordsConfig",
    "from_json",
    "load",
    "to_json",
]
