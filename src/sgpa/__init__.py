"""Transformers that know when they do not know: attention as a sparse Gaussian process."""

from sgpa.attention import (
    ChengBootsSgpa,
    DotProductAttention,
    KernelAttention,
    OrthogonalSgpa,
    StandardSgpa,
)
from sgpa.errors import CheckpointError, ConfigError, InputError, NumericalError, SgpaError
from sgpa.fit import fit
from sgpa.kernels import ArdRbfKernel, ExponentialKernel
from sgpa.models import GraphConfig, ModelConfig, PatchConfig, TokenConfig, Transformer
from sgpa.types import Classification, Regression

__version__ = "0.1.0"

load = Transformer.from_pretrained

__all__ = [
    "ArdRbfKernel",
    "CheckpointError",
    "ChengBootsSgpa",
    "Classification",
    "ConfigError",
    "DotProductAttention",
    "ExponentialKernel",
    "GraphConfig",
    "InputError",
    "KernelAttention",
    "ModelConfig",
    "NumericalError",
    "OrthogonalSgpa",
    "PatchConfig",
    "Regression",
    "SgpaError",
    "StandardSgpa",
    "TokenConfig",
    "Transformer",
    "fit",
    "load",
]
