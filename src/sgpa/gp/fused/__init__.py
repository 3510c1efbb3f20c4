"""Operators equal to equations of `gp.posteriors` within a stated error; `attention.backend` chooses them."""

from sgpa.gp.fused.attend import fused_attend, split
from sgpa.gp.fused.inducing import fused_inducing
from sgpa.gp.fused.mean import fused_mean, pack
from sgpa.gp.fused.shapes import TRITON, WIDTH
from sgpa.gp.fused.variance import fused_sample, fused_variance
from sgpa.gp.fused.variance_cpu import blocked_variance

__all__ = [
    "TRITON",
    "WIDTH",
    "blocked_variance",
    "fused_attend",
    "fused_inducing",
    "fused_mean",
    "fused_sample",
    "fused_variance",
    "pack",
    "split",
]
