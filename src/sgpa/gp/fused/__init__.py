"""Fast paths of the equations in `posteriors.py`; each equals its plain reference within a stated error."""

from sgpa.gp.fused.attend import apart, fused_attend
from sgpa.gp.fused.inducing import fused_inducing, inducing_fuses
from sgpa.gp.fused.mean import fused_mean, pack
from sgpa.gp.fused.shapes import TRITON, WIDTH
from sgpa.gp.fused.variance import fused_sample, fused_variance, fuses
from sgpa.gp.fused.variance_cpu import blocked_variance, blocks_take

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
