"""Fast paths of the equations in `posteriors.py`; each equals its plain reference within a stated error."""

from sgpa.fused.attend import apart, fused_attend
from sgpa.fused.inducing import fused_inducing, inducing_fuses
from sgpa.fused.mean import fused_mean, pack
from sgpa.fused.shapes import TRITON, WIDTH
from sgpa.fused.variance import fused_sample, fused_variance, fuses
from sgpa.fused.variance_cpu import blocked_variance, blocks_take

__all__ = [
    "TRITON",
    "WIDTH",
    "apart",
    "blocked_variance",
    "blocks_take",
    "fused_attend",
    "fused_inducing",
    "fused_mean",
    "fused_sample",
    "fused_variance",
    "fuses",
    "inducing_fuses",
    "pack",
]
