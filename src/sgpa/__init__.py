"""Transformers that know when they do not know: attention as a sparse Gaussian process."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

WHERE = {  # names are imported when they are asked for, so that the command line starts at once
    "sgpa.attention": (
        "ChengBootsSgpa",
        "DotProductAttention",
        "KernelAttention",
        "OrthogonalSgpa",
        "StandardSgpa",
    ),
    "sgpa.core.errors": ("CheckpointError", "ConfigError", "InputError", "NumericalError", "SgpaError"),
    "sgpa.training.fit": ("fit",),
    "sgpa.gp.kernels": ("ArdRbfKernel", "ExponentialKernel"),
    "sgpa.models": ("GraphConfig", "ModelConfig", "PatchConfig", "TokenConfig", "Transformer", "load"),
    "sgpa.inference.serve": ("serve",),
    "sgpa.core.types": ("Classification", "Regression"),
}

if TYPE_CHECKING:
    from sgpa.attention import (
        ChengBootsSgpa,
        DotProductAttention,
        KernelAttention,
        OrthogonalSgpa,
        StandardSgpa,
    )
    from sgpa.core.errors import CheckpointError, ConfigError, InputError, NumericalError, SgpaError
    from sgpa.core.types import Classification, Regression
    from sgpa.gp.kernels import ArdRbfKernel, ExponentialKernel
    from sgpa.inference.serve import serve
    from sgpa.models import GraphConfig, ModelConfig, PatchConfig, TokenConfig, Transformer, load
    from sgpa.training.fit import fit
else:

    def __getattr__(name: str) -> object:
        for module, names in WHERE.items():
            if name in names:
                globals()[name] = found = getattr(import_module(module), name)
                return found
        raise AttributeError(f"module 'sgpa' has no attribute {name!r}")


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
    "serve",
]
