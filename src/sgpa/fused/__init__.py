"""Fast paths of the equations in `posteriors.py`; each equals its plain reference within a stated error."""

from sgpa.fused.variance import fused_variance, fuses

__all__ = ["fused_variance", "fuses"]
